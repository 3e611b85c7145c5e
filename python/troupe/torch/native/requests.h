/// Declares how the native backend of torch.distributed makes requests: a table of functions that the extension module
/// troupe._troupe offers as a capsule. The backend is compiled where it is used, against the installed PyTorch, so it
/// includes no other header of troupe and links nothing of it.
#pragma once

#include <stdint.h>

#define TROUPE_REQUESTS_CAPSULE "troupe.requests"
#define TROUPE_REQUESTS_VERSION 2

#ifdef __cplusplus
extern "C" {
#endif

enum troupe_request_kind {
  TROUPE_REQUEST_ALL_REDUCE,
  TROUPE_REQUEST_REDUCE,
  TROUPE_REQUEST_BROADCAST,
  TROUPE_REQUEST_ALL_GATHER,
  TROUPE_REQUEST_REDUCE_SCATTER,
  TROUPE_REQUEST_ALL_TO_ALL,
  TROUPE_REQUEST_BARRIER,
  TROUPE_REQUEST_SEND,
  TROUPE_REQUEST_RECV
};

/// The numbers of troupe::dtype.
enum troupe_request_type {
  TROUPE_REQUEST_U8,
  TROUPE_REQUEST_I8,
  TROUPE_REQUEST_I32,
  TROUPE_REQUEST_U32,
  TROUPE_REQUEST_I64,
  TROUPE_REQUEST_U64,
  TROUPE_REQUEST_F16,
  TROUPE_REQUEST_F32,
  TROUPE_REQUEST_F64,
  TROUPE_REQUEST_BF16,
  TROUPE_REQUEST_F8E4M3,
  TROUPE_REQUEST_F8E5M2
};

/// The numbers of troupe::reduction.
enum troupe_request_reduction {
  TROUPE_REQUEST_SUM,
  TROUPE_REQUEST_PROD,
  TROUPE_REQUEST_MIN,
  TROUPE_REQUEST_MAX,
  TROUPE_REQUEST_AVG
};

/// The state of a reply, or of its step. UNKNOWN: it cannot be waited for here, for example in a fork.
enum troupe_reply_state { TROUPE_REPLY_PENDING, TROUPE_REPLY_SUCCEEDED, TROUPE_REPLY_FAILED, TROUPE_REPLY_UNKNOWN };

struct troupe_request {
  int32_t kind;
  int32_t type;
  int32_t reduction;
  int32_t peer; ///< The root, or the other rank of a transfer.
  int32_t tag;
  void* source;          ///< Memory that is read. Null: this rank reads none.
  void* result;          ///< Memory that is written; may be \p source.
  uint64_t source_count; ///< Elements.
  uint64_t result_count;
  const uint64_t* send_counts; ///< Of an all_to_all: the elements for each rank.
  const uint64_t* recv_counts;
  int64_t deadline_ns;
  void* stream;           ///< On a GPU: the cudaStream_t for whose present work the request waits, on the GPU.
  void* owner;            ///< Keeps the memory.
  void (*release)(void*); ///< Called once with \p owner and the GIL, after the outcome.
};

/// Functions without a remark may be called on any thread, with or without the GIL. Objects of Python are void*.
struct troupe_requests {
  uint32_t version;
  uint32_t size; ///< Of this structure.
  /// Opens a lane of a rank of \p world, a troupe._troupe.World, for requests with memory of the rank's GPU, or with host
  /// memory, which the world uses in place. Returns null if the world does not do so. The caller must hold the GIL.
  void* (*open)(void* world, int32_t rank, const char* name, int32_t on_gpu);
  /// Opens another lane of that rank. The caller must hold the GIL.
  void* (*open_beside)(void* lane, const char* name);
  void (*close)(void* lane);
  /// Sends a request, and returns its reply. Returns null if it was refused, as with a stream in capture: nothing was
  /// sent, and \p owner has been released.
  void* (*ask)(void* lane, const struct troupe_request* what);
  int32_t (*state)(const void* reply);
  /// Waits until the reply is there, at most for that long, and returns its state. The caller must not hold the GIL.
  /// \p polls: first polls, where that pays.
  int32_t (*wait)(void* reply, int64_t at_most_ns, int32_t polls);
  /// For a request on a GPU: waits until its launch is in the GPU's queue, at most for that long, and then makes \p
  /// stream, a cudaStream_t, wait for it on the GPU. Returns PENDING if it is not there; SUCCEEDED if the stream waits, or
  /// need not; FAILED; UNKNOWN also if the stream is in capture. The caller must not hold the GIL.
  int32_t (*order)(void* reply, void* stream, int64_t at_most_ns, int32_t polls);
  /// Calls \p told with \p what, once, on a thread of troupe's, when the launch is in the GPU's queue, or, without a GPU,
  /// when the reply is there. It must return at once, and not take the GIL. Returns 0, and does not call it, if that is
  /// so already, or the reply is of the parent of this fork.
  int32_t (*tell)(void* reply, void (*told)(void*), void* what);
  void (*release)(void* reply);
  /// Returns the reply as a new reference of Python's troupe.Reply. The caller must hold the GIL.
  void* (*shown)(void* reply);
};

#ifdef __cplusplus
}
#endif

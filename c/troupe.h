/// The C interface of troupe, for programs and engines that are not C++20: worlds of GPUs whose collectives are
/// requested at any time, put into one order and answered once. It is C99, and C++ may include it, too.
///
/// Linking: -ltroupe_c, by pkg-config (troupe_c) or CMake (find_package(troupe COMPONENTS c), troupe::c). The library
/// exports the functions of this header and nothing else. A program that was built against one version of this header
/// runs with every later library of the same soname (libtroupe_c.so.1).
///
/// Errors: functions that can fail return a troupe_code. Their last parameter receives the error with all its fields:
/// NULL, or the address of a pointer, which is set to NULL on success and else to an error that the caller frees
/// (troupe_error_free()). A function that has failed has made nothing: its other results are NULL or unchanged. No C++
/// exception leaves the library. A NULL handle is refused with TROUPE_INVALID_ARGUMENT.
///
/// Structs that may grow begin with their size: set it to sizeof the struct, and all that is not used to 0, as in
///     troupe_request_options options = {.size = sizeof options, .deadline_ns = 5000000000};
/// Fields that a later header appends are 0 for older programs, and 0 is their default. A struct from a newer header is
/// accepted by an older library as long as what that does not know is 0.
///
/// Ownership: a handle is made by the function that stores it in its `made` parameter, and is freed once by the
/// function of its type that ends in _free, which accepts NULL. Handles count references inside: a buffer may be freed
/// while requests use it, a reply before it has arrived, a world before its lanes. What is passed in is copied or is
/// held as long as it is needed; pointers of the caller are used during the call only, unless a comment says otherwise.
///
/// Threads: any thread may call any function, several at a time with one handle, unless a comment says otherwise; only
/// freeing a handle must not overlap with another use of it. Functions that wait say so. They are refused in callbacks.
///
/// Callbacks run on threads of troupe, which answer no other request meanwhile. They must be short, must not wait, and
/// must neither throw nor jump out. They may call functions of this header that do not wait. Their arguments are valid
/// during the call only. `user` is the pointer that was given with the callback.
///
/// Text is UTF-8 and ends with a 0. Functions that return text take an array and its size: they write what fits, ended
/// with a 0, and set *length to the length of the whole text without the 0. Array NULL with size 0 asks for the length.
///
/// Times are in nanoseconds. TROUPE_FOREVER is no limit.
#ifndef TROUPE_TROUPE_H
#define TROUPE_TROUPE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TROUPE_API __attribute__((visibility("default")))
#else
#define TROUPE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/// The version of this interface. It increases when functions or fields are added.
#define TROUPE_C_VERSION 2

#define TROUPE_FOREVER INT64_MAX
/// The size of the id of a world that processes form without a controller.
#define TROUPE_ID_BYTES 128

// Handles -------------------------------------------------------------------------------------------------------------

typedef struct troupe_error troupe_error;           ///< Why a call or a request failed. Immutable.
typedef struct troupe_settings troupe_settings;     ///< The settings of a runtime. Threads: one at a time.
typedef struct troupe_runtime troupe_runtime;       ///< Devices, threads and worlds of this process.
typedef struct troupe_world troupe_world;           ///< A world of ranks.
typedef struct troupe_lane troupe_lane;             ///< A client of one rank. Threads: one at a time.
typedef struct troupe_driver troupe_driver;         ///< A client of all ranks in a process without a rank.
typedef struct troupe_processes troupe_processes;   ///< The processes of a world at one time. Immutable.
typedef struct troupe_controller troupe_controller; ///< The controller of a world over processes.
typedef struct troupe_buffer troupe_buffer;         ///< A range of memory for requests. Immutable.
typedef struct troupe_stream troupe_stream;         ///< A stream of the client on a rank's device.
typedef struct troupe_event troupe_event;           ///< A point in a stream of the client. Immutable.
typedef struct troupe_reply troupe_reply;           ///< The answer to a request.
typedef struct troupe_plan troupe_plan;             ///< Captured requests. Immutable.
typedef struct troupe_function troupe_function;     ///< A function of this process that requests call. Immutable.
typedef struct troupe_status troupe_status;         ///< The state of a world at one moment. Immutable.

// Codes and errors ----------------------------------------------------------------------------------------------------

/// The result of a function: TROUPE_OK, TROUPE_WAITING, or the kind of a failure, which says what the caller should do.
typedef int32_t troupe_code;
enum {
  TROUPE_WAITING = -1,             ///< Not a failure: what was waited for has not happened in that time.
  TROUPE_OK = 0,                   ///< No failure.
  TROUPE_INVALID_ARGUMENT = 1,     ///< Fix the call: the text names the value and the limit.
  TROUPE_UNSUPPORTED = 2,          ///< Use another operation or setting: this device or library does not support it.
  TROUPE_MISMATCH = 3,             ///< Fix the callers: ranks disagree about one operation.
  TROUPE_WRONG_DEVICE = 4,         ///< Pass a buffer that lives on the rank's own device.
  TROUPE_STALE_BUFFER = 5,         ///< Allocate again: the device has lost its memory since the allocation.
  TROUPE_STALE_EPOCH = 6,          ///< Bring the ranks to one state, acknowledge the current epoch, then retry.
  TROUPE_OUT_OF_MEMORY = 7,        ///< Free something, or ask for less.
  TROUPE_MISSING = 8,              ///< Install what the text names (driver, library, device).
  TROUPE_TOO_OLD = 9,              ///< Upgrade what the text names.
  TROUPE_DEVICE_OCCUPIED = 10,     ///< Free the device or choose another: another process holds it exclusively.
  TROUPE_BUSY = 11,                ///< Retry when earlier requests have been answered: too many are waiting.
  TROUPE_CANCELLED = 12,           ///< Nothing, or retry: withdrawn by its client or by a peer of the operation.
  TROUPE_STOPPING = 13,            ///< Nothing: the world is shutting down.
  TROUPE_REBUILDING = 14,          ///< Retry when the world is ready: it is being rebuilt after a fault.
  TROUPE_RANK_LOST = 15,           ///< Use a remaining rank: this one has left its world.
  TROUPE_WORLD_FAILED = 16,        ///< Form a new world: this one has failed and says why.
  TROUPE_DEADLINE_EXCEEDED = 17,   ///< Retry later or allow more time.
  TROUPE_COMMUNICATOR_FAILED = 18, ///< Continue when the world is ready again: its communicator has failed.
  TROUPE_DEVICE_FAILED = 19,       ///< Continue when the world is ready again: the device reported an error.
  TROUPE_PROCESS_POISONED = 20,    ///< Replace the process: a sticky device error cannot be undone in it.
  TROUPE_ABANDONED = 21,           ///< Retry: what held the request has ended.
  TROUPE_INTERNAL = 22             ///< Report a bug in troupe.
};

/// Returns the name of \p code, for example "stale_epoch"; "unknown" for another value. Lifetime: static.
TROUPE_API const char* troupe_code_name(troupe_code code);
/// Returns the version of the library, for example "0.3.0". Lifetime: static.
TROUPE_API const char* troupe_version(void);
/// Returns the TROUPE_C_VERSION of the library.
TROUPE_API int32_t troupe_c_version(void);

/// Whether failed work may have touched memory.
typedef int32_t troupe_effect;
enum {
  TROUPE_REJECTED = 0,       ///< The work certainly did not run; buffers are as they were.
  TROUPE_UNKNOWN_OUTCOME = 1 ///< The work may have run; the contents of its output buffers are undefined.
};

/// The fields of an error. Texts live as long as the error; none is NULL.
typedef struct troupe_error_info {
  size_t size;
  troupe_code code;
  troupe_effect effect;
  const char* text;        ///< For people: the value, the limit, the remedy.
  const char* line;        ///< The whole error as one line, for logs.
  const char* call;        ///< The external call that failed, e.g. "ncclAllReduce"; empty if none.
  const char* native_text; ///< The error text of that call.
  int32_t native_code;     ///< The error code of that call.
  int32_t rank;            ///< The rank at fault; -1: none is named.
  uint64_t ticket;         ///< The ticket of the request; 0: none.
  uint64_t epoch;          ///< The epoch; 0: none is named.
  int64_t part;            ///< For a group: the index of the part that failed; -1: none.
  int32_t knows_undefined; ///< With an unknown outcome: whether the undefined buffers are listed.
  int32_t has_absence;     ///< Whether the fields below and troupe_error_standing() tell of missing peers.
  size_t undefined_count;  ///< The number of undefined buffers: troupe_error_undefined().
  const char* waiting;     ///< The operation that waited for its peers.
  const char* lane;        ///< Its lane.
  int64_t waited_ns;       ///< How long it waited.
  const int32_t* missing;  ///< The ranks that have not asked for it. Lifetime: that of the error.
  size_t missing_count;
  size_t standing_count; ///< The number of ranks that troupe_error_standing() tells of.
} troupe_error_info;

/// A memory range that a request with an unknown outcome may have written.
typedef struct troupe_undefined_buffer {
  size_t size;
  const void* address;
  size_t size_bytes;
  int32_t rank;   ///< The rank whose part of the request writes it.
  int32_t device; ///< The device that holds it; -1: host memory.
} troupe_undefined_buffer;

/// The progress of a rank when an operation waited for its peers. Texts are empty if there was no such operation. They
/// live as long as the error.
typedef struct troupe_standing {
  size_t size;
  int32_t rank;
  int32_t participates;      ///< Whether the waiting operation needs the rank.
  int32_t asked;             ///< Whether the rank has requested it.
  const char* last_asked;    ///< Its newest request, in any lane.
  const char* last_launched; ///< Its last launched request.
  const char* last_finished; ///< Its last finished request.
} troupe_standing;

/// Reads the fields of an error into \p info, whose size the caller sets.
TROUPE_API troupe_code troupe_error_get(const troupe_error* error, troupe_error_info* info);
/// Reads undefined buffer number \p index, in ascending order of ranks.
TROUPE_API troupe_code troupe_error_undefined(const troupe_error* error, size_t index, troupe_undefined_buffer* buffer);
/// Reads the standing of the rank with the number \p index, in the order of ranks.
TROUPE_API troupe_code troupe_error_standing(const troupe_error* error, size_t index, troupe_standing* standing);
/// Returns a copy that the caller frees: of an error that a callback wants to keep. NULL if there is no memory.
TROUPE_API troupe_error* troupe_error_copy(const troupe_error* error);
/// Frees an error. NULL is accepted.
TROUPE_API void troupe_error_free(troupe_error* error);

// Settings ------------------------------------------------------------------------------------------------------------

/// Reads the settings: defaults, then the file \p file (NULL: the one that TROUPE_CONFIG names, if any), then the
/// environment's TROUPE_… variables and those of a launcher. docs/configuration.md lists them. Errors:
/// invalid_argument, which names the file and line, or the variable. Threads: none may change the environment
/// meanwhile.
TROUPE_API troupe_code troupe_settings_create(const char* file, troupe_settings** made, troupe_error** error);
/// Sets the setting \p name, for example "backend" to "mock" or "deadlines.form" to "10s". Errors: invalid_argument,
/// which names the nearest setting or the valid values.
TROUPE_API troupe_code troupe_settings_set(troupe_settings* settings, const char* name, const char* value,
                                           troupe_error** error);
/// Returns the value of the setting \p name as text that troupe_settings_set() reads.
TROUPE_API troupe_code troupe_settings_get(const troupe_settings* settings, const char* name, char* text,
                                           size_t text_bytes, size_t* length, troupe_error** error);
/// Sets the token with which a process joins the world of its controller, in place of TROUPE_JOIN_TOKEN. It is a
/// secret, therefore not a setting.
TROUPE_API troupe_code troupe_settings_set_token(troupe_settings* settings, const char* token, troupe_error** error);
/// Returns the name of the setting number \p index, from 0; NULL beyond the last. Lifetime: static.
TROUPE_API const char* troupe_setting_name(size_t index);
TROUPE_API void troupe_settings_free(troupe_settings* settings);

// Runtimes ------------------------------------------------------------------------------------------------------------

/// Opens the backend and starts the threads of a runtime with a copy of \p settings (NULL: those of
/// troupe_settings_create(NULL)). Waits. Errors: invalid_argument (a setting), missing, too_old (driver, library).
TROUPE_API troupe_code troupe_runtime_create(const troupe_settings* settings, troupe_runtime** made,
                                             troupe_error** error);
/// Ends the runtime and its worlds: requests in flight have deadlines.drain to finish, and all are answered. Waits
/// until all has ended; in a callback it returns at once, and the end follows on another thread. Handles of its worlds,
/// lanes and buffers may be freed later.
TROUPE_API void troupe_runtime_free(troupe_runtime* runtime);
/// Returns driver, backend, versions and profile on one line.
TROUPE_API troupe_code troupe_runtime_describe(const troupe_runtime* runtime, char* text, size_t text_bytes,
                                               size_t* length, troupe_error** error);
/// Makes the id of a world that processes form without a controller: rank 0 makes it, and every process passes it in
/// troupe_world_options. It is a capability: pass it on in private, and never log it.
TROUPE_API troupe_code troupe_runtime_make_id(troupe_runtime* runtime, unsigned char id[TROUPE_ID_BYTES],
                                              troupe_error** error);
/// Returns the memory that the pools of all devices keep unused to the devices, and its bytes in \p released (may be
/// NULL). Waits for all work of all devices.
TROUPE_API troupe_code troupe_runtime_release_unused(troupe_runtime* runtime, size_t* released, troupe_error** error);
/// Writes the latest requests of every rank and their outcomes to \p file (NULL: a new file in report.folder, else in
/// the working folder), for `troupe trace`.
TROUPE_API troupe_code troupe_runtime_write_flight_record(const troupe_runtime* runtime, const char* file,
                                                          troupe_error** error);

typedef struct troupe_world_options {
  size_t size;
  const unsigned char* id; ///< The id of the world, of TROUPE_ID_BYTES bytes; NULL: none is needed.
} troupe_world_options;

/// Forms a world over the ranks that the settings name: all devices of this process, or this process's rank among those
/// that a launcher has started. Waits until the world is ready. \p options may be NULL. Errors: invalid_argument (more
/// ranks than devices, a missing id), device_occupied, communicator_failed, deadline_exceeded, stopping.
TROUPE_API troupe_code troupe_runtime_form_world(troupe_runtime* runtime, const troupe_world_options* options,
                                                 troupe_world** made, troupe_error** error);

// Status and events ---------------------------------------------------------------------------------------------------

typedef int32_t troupe_phase;
enum {
  TROUPE_PHASE_FORMING = 0,    ///< The ranks create their communicators; requests are rejected.
  TROUPE_PHASE_READY = 1,      ///< Requests are served.
  TROUPE_PHASE_REBUILDING = 2, ///< After a fault, until the ranks have formed again; requests are rejected.
  TROUPE_PHASE_FAILED = 3,     ///< Closed after a fault; requests are rejected with its reason.
  TROUPE_PHASE_STOPPING = 4,   ///< No new requests; those in flight are finishing.
  TROUPE_PHASE_STOPPED = 5     ///< All resources have been released.
};

/// The fields of a status. Pointers live as long as the status; texts are never NULL.
typedef struct troupe_status_info {
  size_t size;
  uint64_t epoch;
  troupe_phase phase;
  int32_t world_size;
  const char* text;           ///< The whole status as one line, for logs.
  const troupe_error* reason; ///< Why the world failed or is rebuilt; NULL: no reason. Owned by the status.
  const int32_t* local_ranks; ///< The ranks of this process, ascending.
  const int32_t* origins;     ///< For each of local_ranks its number in the first epoch.
  size_t local_rank_count;
  const int32_t* lost; ///< The excluded ranks, by their numbers in the first epoch, in the order of their loss.
  const uint64_t* lost_last_in; ///< For each of them the last epoch that it was part of.
  size_t lost_count;
  const char* straggling; ///< An operation that some ranks have requested and others have not for long; else empty.
  const char* report;     ///< What each rank did at a fault, and the suspects; else empty.
  const char* recovery;   ///< The attempts to recover from the last fault; else empty.
  const char* restored;   ///< What has been restored after it; else empty.
  const char* one_shot;   ///< What the epoch has of one-shot kernels; else empty.
  int32_t is_suspended;
  int32_t has_resume_points; ///< Whether the fields below, and troupe_status_resume_point(), say where to continue.
  size_t resume_point_count;
  uint64_t counted_from; ///< The epoch at whose beginning the positions of all lanes were 0.
  int32_t has_survivors; ///< Whether a process that was told of these commits is still in the world.
} troupe_status_info;

/// Where a lane stood when the previous epoch ended, the same at every rank. Clients continue from a state that they
/// saved at or before this point (docs/recovery.md).
typedef struct troupe_resume_point {
  size_t size;
  const char* lane;    ///< The lane; NULL: requests to all ranks of the world. Lifetime: that of the status.
  uint64_t complete;   ///< Number of complete operations since counted_from.
  uint64_t commit;     ///< The number of the last complete commit, if has_commit.
  uint64_t incomplete; ///< Number of operations that were released and are not complete.
  int32_t has_commit;
  size_t listed_count;      ///< How many of these troupe_status_incomplete() lists.
  size_t agreed_count;      ///< Values of agrees from `complete` on, oldest first: troupe_status_agreed().
  uint64_t agreed_unlisted; ///< How many of them are left out, because there were too many.
} troupe_resume_point;

/// An operation that was released in an epoch that has ended, and is not complete: its outputs count as overwritten.
/// Pointers live as long as the status. Ranks have their numbers of that epoch.
typedef struct troupe_incomplete_operation {
  size_t size;
  uint64_t position;        ///< From troupe_resume_point.complete on.
  const int32_t* succeeded; ///< The ranks where it is known to have succeeded.
  size_t succeeded_count;
  const int32_t* unknown; ///< The other participants.
  size_t unknown_count;
} troupe_incomplete_operation;

/// A value on which ranks agreed in an epoch that has ended: a rank may have received it, others may not have. Pointers
/// live as long as the status.
typedef struct troupe_agreed_value {
  size_t size;
  uint64_t epoch;
  uint64_t position;
  const void* value;
  size_t value_bytes;
  const uint32_t* part_sizes; ///< TROUPE_AGREE_GATHER_ALL: the size of each rank's part.
  size_t part_count;
} troupe_agreed_value;

TROUPE_API troupe_code troupe_status_get(const troupe_status* status, troupe_status_info* info);
/// Reads resume point number \p index.
TROUPE_API troupe_code troupe_status_resume_point(const troupe_status* status, size_t index,
                                                  troupe_resume_point* point);
/// Reads operation number \p index of the resume point number \p point.
TROUPE_API troupe_code troupe_status_incomplete(const troupe_status* status, size_t point, size_t index,
                                                troupe_incomplete_operation* operation);
/// Reads value number \p index of the resume point number \p point.
TROUPE_API troupe_code troupe_status_agreed(const troupe_status* status, size_t point, size_t index,
                                            troupe_agreed_value* value);
/// Returns a copy that the caller frees: of a status that a callback wants to keep. NULL if there is no memory.
TROUPE_API troupe_status* troupe_status_copy(const troupe_status* status);
TROUPE_API void troupe_status_free(troupe_status* status);

/// Receives a status, which is valid during the call (troupe_status_copy()).
typedef void (*troupe_status_callback)(void* user, const troupe_status* status);

// Worlds --------------------------------------------------------------------------------------------------------------

/// Frees the handle. The world ends with its last handle if all its ranks are in this process; else by
/// troupe_world_stop(), or with its runtime.
TROUPE_API void troupe_world_free(troupe_world* world);
/// Lets requests in flight finish, releases all resources, and returns when that is done. Waits; in a callback it
/// returns at once. Errors: deadline_exceeded.
TROUPE_API troupe_code troupe_world_stop(troupe_world* world, troupe_error** error);
/// Returns the number of ranks in the current epoch; 0 for NULL.
TROUPE_API int32_t troupe_world_size(const troupe_world* world);
/// Returns the current epoch; 0 for NULL.
TROUPE_API uint64_t troupe_world_epoch(const troupe_world* world);
/// Returns the current state.
TROUPE_API troupe_code troupe_world_status(const troupe_world* world, troupe_status** made, troupe_error** error);
/// Waits until the world is ready in an epoch later than \p after (0: in any), has failed or stops. Returns TROUPE_OK,
/// or TROUPE_WAITING if \p at_most_ns has passed; \p made receives the state in both cases. Read its phase: the world
/// may have failed. After an error, pass the epoch of the request that failed.
TROUPE_API troupe_code troupe_world_wait_ready(const troupe_world* world, uint64_t after, int64_t at_most_ns,
                                               troupe_status** made, troupe_error** error);
/// Calls \p ready once, as soon as troupe_world_wait_ready() would return TROUPE_OK, possibly at once. If the runtime
/// ends first, the status is NULL.
TROUPE_API troupe_code troupe_world_when_ready(const troupe_world* world, uint64_t after, troupe_status_callback ready,
                                               void* user, troupe_error** error);
/// Calls \p heard for every later event of the world, in order: changes of phase, and reports. \p forget is called with
/// \p user when no more events follow, at the latest when the world has been destroyed; it may be NULL. If this
/// function fails, it calls neither.
TROUPE_API troupe_code troupe_world_on_event(troupe_world* world, troupe_status_callback heard, void* user,
                                             void (*forget)(void* user), troupe_error** error);
/// Returns whether the world has \p feature (docs/capabilities.md), for example "suspend": 1, 0, or -1 if only an
/// attempt can show it. The text says why.
TROUPE_API troupe_code troupe_world_feature(const troupe_world* world, const char* feature, int32_t* available,
                                            char* text, size_t text_bytes, size_t* length, troupe_error** error);

/// Ranks of a world that form a sub-world: members[i] is rank i of the sub-world.
typedef struct troupe_rank_group {
  size_t size;
  const char* name;
  const int32_t* members;
  size_t member_count;
} troupe_rank_group;

/// Splits off a sub-world for each of \p count groups, and stores their handles in \p made in the same order: NULL for
/// a group without a rank in this process. Waits. Order: every process of the world makes the same call. The size of
/// the first group is the distance between groups. Errors: invalid_argument, stopping, world_failed, deadline_exceeded.
TROUPE_API troupe_code troupe_world_split(troupe_world* world, const troupe_rank_group* groups, size_t count,
                                          troupe_world** made, troupe_error** error);
/// Releases the device memory of the world's communicators while it is idle. Requests that arrive later wait until
/// troupe_world_resume(). Waits. Order: every process of the world makes the same call. Errors: unsupported,
/// invalid_argument (already suspended), stopping, world_failed.
TROUPE_API troupe_code troupe_world_suspend(troupe_world* world, troupe_error** error);
/// Allocates the memory again and serves the requests that wait. Waits. Errors: world_failed, stopping.
TROUPE_API troupe_code troupe_world_resume(troupe_world* world, troupe_error** error);
/// Lets this process leave its world over processes as planned, for maintenance: a process that stands by takes its
/// place, or the others go on with fewer ranks, and lose no request. Waits until it is no rank any more; the world then
/// stops here. \p renumbers: 1 if the ranks behind this one may get other numbers. Errors: those of
/// troupe_driver_change(); unsupported (a sub-world, a world without a controller). Since version 2.
TROUPE_API troupe_code troupe_world_leave(troupe_world* world, int32_t renumbers, troupe_error** error);

// Memory --------------------------------------------------------------------------------------------------------------

/// Allocates \p size_bytes of device memory on the device of \p rank. Contents: undefined. Errors: out_of_memory,
/// invalid_argument (not a rank of this process).
TROUPE_API troupe_code troupe_world_allocate(troupe_world* world, int32_t rank, size_t size_bytes, troupe_buffer** made,
                                             troupe_error** error);
/// Allocates one buffer of \p size_bytes for each rank of this process, of registered memory if there is room in it.
/// \p made is an array of \p count handles, which must be the number of these ranks; ascending. All or none.
TROUPE_API troupe_code troupe_world_allocate_all(troupe_world* world, size_t size_bytes, troupe_buffer** made,
                                                 size_t count, troupe_error** error);
/// Allocates \p size_bytes of page-locked host memory that every rank of this process can access.
TROUPE_API troupe_code troupe_world_allocate_pinned(troupe_world* world, size_t size_bytes, troupe_buffer** made,
                                                    troupe_error** error);
/// Makes memory of the caller's own an operand: device memory of the device of \p rank, or any host memory. \p release
/// is called with \p user, once, when the last handle and the last request that uses the memory have gone: as a
/// callback, on any thread, which may be shortly after the answer to the request. \p release may be NULL: the memory
/// must then stay valid until the answers of all requests that use it, and after an unknown outcome until the world has
/// ended. If this function fails, it does not call \p release. Errors: invalid_argument (NULL with a size),
/// wrong_device, out_of_memory.
TROUPE_API troupe_code troupe_world_adopt(troupe_world* world, int32_t rank, void* address, size_t size_bytes,
                                          void (*release)(void* user), void* user, troupe_buffer** made,
                                          troupe_error** error);
/// Registers \p size_bytes of memory on each rank with all ranks, which makes some requests faster. Waits. Order: every
/// process of the world makes the same call.
TROUPE_API troupe_code troupe_world_register_memory(troupe_world* world, size_t size_bytes, troupe_error** error);
/// Returns the memory that the pools of the world's devices keep unused to the devices, and its bytes in \p released
/// (may be NULL).
TROUPE_API troupe_code troupe_world_release_unused(troupe_world* world, size_t* released, troupe_error** error);

/// Makes a handle of the range of \p size_bytes from \p offset_bytes of \p buffer. Both share the memory.
TROUPE_API troupe_code troupe_buffer_slice(const troupe_buffer* buffer, size_t offset_bytes, size_t size_bytes,
                                           troupe_buffer** made, troupe_error** error);
/// Returns the address of the first byte: a device pointer for device memory. NULL for NULL and for memory of another
/// process.
TROUPE_API void* troupe_buffer_address(const troupe_buffer* buffer);
/// Returns the size in bytes; 0 for NULL.
TROUPE_API size_t troupe_buffer_size(const troupe_buffer* buffer);
/// Returns 1 for host memory, 0 for device memory and NULL.
TROUPE_API int32_t troupe_buffer_on_host(const troupe_buffer* buffer);
/// Returns 1 if its device has lost the memory, which must then be allocated again; else 0.
TROUPE_API int32_t troupe_buffer_is_stale(const troupe_buffer* buffer);
TROUPE_API void troupe_buffer_free(troupe_buffer* buffer);

/// Refers to memory that the process of a rank has exported. It is plain data that may be sent to other processes of
/// the same world, and holds nothing.
typedef struct troupe_remote_buffer {
  size_t size;
  uint64_t session;
  uint64_t id;
  uint64_t offset_bytes;
  uint64_t size_bytes;
  int32_t exporter; ///< The rank that exported it, by its number then. For messages only.
  int32_t on_host;
} troupe_remote_buffer;

/// Exports \p buffer, which \p rank of this process uses, and fills \p handle, whose size the caller sets: requests to
/// all ranks, made in any process of the world or by a driver, may then name it. The memory is held until
/// troupe_world_unexport(). \p name (may be NULL): others find the handle by it.
TROUPE_API troupe_code troupe_world_export(troupe_world* world, int32_t rank, const troupe_buffer* buffer,
                                           const char* name, troupe_remote_buffer* handle, troupe_error** error);
TROUPE_API troupe_code troupe_world_unexport(troupe_world* world, const troupe_remote_buffer* handle,
                                             troupe_error** error);
/// Asks the process of \p rank for the memory that it has exported under \p name. Waits. Errors: missing,
/// deadline_exceeded, invalid_argument.
TROUPE_API troupe_code troupe_world_find(const troupe_world* world, int32_t rank, const char* name, int64_t deadline_ns,
                                         troupe_remote_buffer* handle, troupe_error** error);
/// Makes an operand of a handle to memory of another process.
TROUPE_API troupe_code troupe_buffer_from_remote(const troupe_remote_buffer* handle, troupe_buffer** made,
                                                 troupe_error** error);

// Element types, reductions -------------------------------------------------------------------------------------------

typedef int32_t troupe_dtype;
enum {
  TROUPE_U8 = 0,
  TROUPE_I8 = 1,
  TROUPE_I32 = 2,
  TROUPE_U32 = 3,
  TROUPE_I64 = 4,
  TROUPE_U64 = 5,
  TROUPE_F16 = 6,
  TROUPE_F32 = 7,
  TROUPE_F64 = 8,
  TROUPE_BF16 = 9,
  TROUPE_F8E4M3 = 10,
  TROUPE_F8E5M2 = 11
};
/// Returns the size of one element in bytes; 0 for another value.
TROUPE_API size_t troupe_dtype_size(troupe_dtype type);

typedef int32_t troupe_reduction;
enum {
  TROUPE_SUM = 0,
  TROUPE_PROD = 1,
  TROUPE_MIN = 2,
  TROUPE_MAX = 3,
  TROUPE_AVG = 4,        ///< The sum divided by the number of ranks; see docs/reference/types.md for the rounding.
  TROUPE_PRE_MUL_SUM = 5 ///< The sum after each rank has multiplied its own elements by its factor.
};

// DLPack --------------------------------------------------------------------------------------------------------------

// The tensors of <dlpack/dlpack.h>, which this header does not need.
struct DLManagedTensor;
struct DLManagedTensorVersioned;

/// Describes an imported tensor.
typedef struct troupe_tensor_info {
  size_t size;
  size_t count; ///< Its number of elements.
  troupe_dtype type;
  int32_t rank; ///< The rank on whose device it is; -1: host memory, usable by every rank.
} troupe_tensor_info;

/// Makes an operand of a tensor of another library, without a copy. The tensor must be row-major without gaps, and
/// ready: order it by troupe_event_record() else. On success troupe owns the tensor, and deletes it once, as
/// troupe_world_adopt() calls `release`; on an error the caller still owns it. \p info (may be NULL): its size is set
/// by the caller. Errors: invalid_argument, unsupported (type or device; built without DLPack), wrong_device.
TROUPE_API troupe_code troupe_world_import_dlpack(troupe_world* world, struct DLManagedTensor* tensor,
                                                  troupe_tensor_info* info, troupe_buffer** made, troupe_error** error);
/// The same for a tensor of DLPack 1.x. \p read_only_allowed: the caller ensures that no request writes it; otherwise a
/// read-only tensor is refused.
TROUPE_API troupe_code troupe_world_import_dlpack_versioned(troupe_world* world,
                                                            struct DLManagedTensorVersioned* tensor,
                                                            int32_t read_only_allowed, troupe_tensor_info* info,
                                                            troupe_buffer** made, troupe_error** error);
/// Exports the first elements of \p buffer as a tensor of \p shape, row-major. It holds the memory until its deleter is
/// called, by any thread. The memory must not be in use by a request that writes it. Errors: invalid_argument,
/// unsupported (fp8; built without DLPack).
TROUPE_API troupe_code troupe_buffer_to_dlpack(const troupe_buffer* buffer, troupe_dtype type, const int64_t* shape,
                                               size_t dimensions, struct DLManagedTensor** made, troupe_error** error);
/// The same as a tensor of DLPack 1.x, which also has fp8.
TROUPE_API troupe_code troupe_buffer_to_dlpack_versioned(const troupe_buffer* buffer, troupe_dtype type,
                                                         const int64_t* shape, size_t dimensions,
                                                         struct DLManagedTensorVersioned** made, troupe_error** error);

// Streams of the client -----------------------------------------------------------------------------------------------

/// Makes a stream on the device of \p rank, for programs without CUDA's headers and for worlds of the mock. With CUDA
/// any cudaStream_t of the device does as well.
TROUPE_API troupe_code troupe_stream_create(troupe_world* world, int32_t rank, troupe_stream** made,
                                            troupe_error** error);
/// Returns the stream itself, which functions below take: a cudaStream_t with CUDA. NULL for NULL.
TROUPE_API void* troupe_stream_native(const troupe_stream* stream);
/// Copies in stream order between any two of device, pinned and pageable memory, by their addresses. The memory must
/// stay valid until then.
TROUPE_API troupe_code troupe_stream_copy(troupe_stream* stream, void* to, const void* from, size_t size_bytes,
                                          troupe_error** error);
/// Waits until all work in the stream has finished.
TROUPE_API troupe_code troupe_stream_synchronize(troupe_stream* stream, troupe_error** error);
/// Frees the handle; work that is in the stream still runs.
TROUPE_API void troupe_stream_free(troupe_stream* stream);
/// Records an event behind the work that is now in \p stream, a stream of the device of \p rank (with CUDA also NULL,
/// the default stream). An operand with this event is used behind that work, without the CPU. Errors: invalid_argument,
/// unsupported (NULL with the mock).
TROUPE_API troupe_code troupe_event_record(troupe_world* world, int32_t rank, void* stream, troupe_event** made,
                                           troupe_error** error);
TROUPE_API void troupe_event_free(troupe_event* event);

// Operations ----------------------------------------------------------------------------------------------------------

/// The kinds of operations. What each does, its shapes and in-place rules: docs/reference.
typedef int32_t troupe_kind;
enum {
  TROUPE_ALL_REDUCE = 0,
  TROUPE_REDUCE = 1,
  TROUPE_BROADCAST = 2,
  TROUPE_ALL_GATHER = 3,
  TROUPE_REDUCE_SCATTER = 4,
  TROUPE_ALL_TO_ALL = 5,
  TROUPE_GATHER = 6,
  TROUPE_SCATTER = 7,
  TROUPE_ALL_GATHER_V = 8,
  TROUPE_REDUCE_SCATTER_V = 9,
  TROUPE_ALL_TO_ALL_V = 10,
  TROUPE_GATHER_V = 11,
  TROUPE_SCATTER_V = 12,
  TROUPE_SEND = 13,
  TROUPE_RECV = 14,
  TROUPE_BARRIER = 15,
  TROUPE_COPY = 16,
  TROUPE_GROUP = 17,
  TROUPE_REPLAY = 18,
  TROUPE_CALL = 19,
  TROUPE_AGREE = 20 ///< One value of host bytes for all ranks: troupe_completion.agreed.
};

/// How TROUPE_AGREE makes one value of the ranks' contributions. Integers are 64-bit, signed, one after the other.
typedef int32_t troupe_agreement_rule;
enum {
  TROUPE_AGREE_OF_RANK = 0,  ///< The contribution of the rank `root`.
  TROUPE_AGREE_ANY_OF = 1,   ///< The bitwise OR. All contributions have the same size.
  TROUPE_AGREE_ALL_OF = 2,   ///< The bitwise AND. All contributions have the same size.
  TROUPE_AGREE_MIN = 3,      ///< The smallest integer of all ranks, at each place. All have the same size.
  TROUPE_AGREE_MAX = 4,      ///< The largest integer of all ranks, at each place. All have the same size.
  TROUPE_AGREE_SUM = 5,      ///< The sum of the integers of all ranks, at each place; it wraps. All have the same size.
  TROUPE_AGREE_UNION_OF = 6, ///< The integers that any rank contributes, each once, in ascending order.
  TROUPE_AGREE_GATHER_ALL = 7 ///< All contributions, one after the other in rank order.
};

/// Memory, and an event of the client after which it may be used (NULL: now). This struct does not grow.
typedef struct troupe_operand {
  const troupe_buffer* memory; ///< NULL: none, e.g. recv of a rank that is not the root.
  const troupe_event* ready;
} troupe_operand;

/// One operation of one rank. Fields that its kind does not use are ignored. Arrays of operations have the size of the
/// first element as their distance. Everything it points to is used during the call only: handles may be freed, and
/// arrays reused, as soon as the function that takes the operation has returned.
typedef struct troupe_operation {
  size_t size;
  troupe_kind kind;
  troupe_dtype type;
  troupe_operand send; ///< What is read; the memory of a send; the source of a copy.
  troupe_operand recv; ///< What is written; the memory of a recv; the destination of a copy.
  size_t count;        ///< In elements; of all_gather, reduce_scatter, all_to_all, gather, scatter: of one rank's part.
  troupe_reduction reduction;
  int32_t root;       ///< The root of reduce, broadcast, gather, scatter.
  int32_t peer;       ///< The peer of send and recv.
  int32_t tag;        ///< The tag of send and recv, 0 or greater.
  int32_t staged;     ///< Not 0: other ranks use host memory and this one does not (docs/host-memory.md).
  int32_t is_commit;  ///< Not 0: a barrier is a commit with the number `commit`.
  uint64_t commit;    ///< All ranks give the same number.
  const void* factor; ///< TROUPE_PRE_MUL_SUM: one element of `type`.
  const troupe_buffer* factor_memory; ///< Or one element in memory of the rank's device, which is read when it runs.
  const size_t* send_counts;          ///< Operations of unequal parts: elements for each rank …
  const size_t* send_displacements;   ///< … and where they begin; NULL: without gaps, in rank order.
  const size_t* recv_counts;          ///< The same of the parts of recv.
  const size_t* recv_displacements;
  size_t part_count;                    ///< The number of these counts: the size of the world.
  const struct troupe_operation* parts; ///< TROUPE_GROUP: its parts, launched together …
  size_t group_size;                    ///< … and their number.
  const troupe_plan* plan;              ///< TROUPE_REPLAY: the plan, or NULL and its name.
  const troupe_function* function;      ///< TROUPE_CALL: a function of this process, or NULL and its name.
  const char* name;                     ///< In requests to all ranks of a world over processes: each has its own.
  const troupe_operand* arguments;      ///< TROUPE_CALL: memory for the function …
  size_t argument_count;
  const void* values; ///< … and bytes for it; TROUPE_AGREE: what this rank contributes, at most 4096 bytes.
  size_t value_bytes;
  troupe_agreement_rule rule; ///< TROUPE_AGREE: the same at all ranks, as `root`.
} troupe_operation;

/// The answer to a request that has succeeded. Times are of the process's steady clock (CLOCK_MONOTONIC).
typedef struct troupe_completion {
  size_t size;
  uint64_t ticket;
  uint64_t epoch;
  uint64_t launch;     ///< The position in the order of its rank's launches; 0: a request to all ranks.
  int64_t queued_ns;   ///< Accepted.
  int64_t launched_ns; ///< Enqueued on the GPU.
  int64_t done_ns;     ///< Observed as done.
  /// The value of an agree, the same at all ranks; NULL for other operations, and for an empty value. Lives as long as
  /// the reply, or as the call of the callback.
  const void* agreed;
  size_t agreed_bytes;
  uint64_t agreed_position;          ///< The number of operations that were released in the lane before it.
  const uint32_t* agreed_part_sizes; ///< TROUPE_AGREE_GATHER_ALL: the size of each rank's part of the value.
  size_t agreed_part_count;
} troupe_completion;

/// Receives the answer to a request, once: \p completed, or \p failed; the other is NULL.
typedef void (*troupe_done_callback)(void* user, const troupe_completion* completed, const troupe_error* failed);

/// The options of a request.
typedef struct troupe_request_options {
  size_t size;
  int64_t deadline_ns;       ///< From acceptance to the answer; 0: the setting deadlines.operation.
  uint64_t epoch;            ///< The epoch it is for. 0: the current one of a world, the acknowledged one of a lane.
  troupe_done_callback done; ///< Called with the answer, possibly before the function returns; NULL: none.
  void* user;
  const char*
      file;       ///< The source file of the request, for the flight record; a text that lives as long as the runtime.
  uint32_t line;  ///< Its line in that file.
  int32_t staged; ///< Not 0: sets `staged` of all parts.
  /// Not 0: the reply also tells when the request is in the GPUs' queues: troupe_reply_wait_enqueued(),
  /// troupe_reply_order(). Not for drivers.
  int32_t in_two_steps;
} troupe_request_options;

/// The place of the request, for an initializer of troupe_request_options: {.size = sizeof options, TROUPE_HERE}.
#define TROUPE_HERE .file = __FILE__, .line = __LINE__

// Requests ------------------------------------------------------------------------------------------------------------
//
// A function that asks never blocks. If it returns TROUPE_OK, the request is answered exactly once: by the reply in
// \p made, and by options->done. \p made may be NULL if there is a callback; \p options may be NULL if there is a
// reply. If it returns another code, nothing has been asked, and the callback is not called. What is wrong with an
// operation or between ranks is said by the answer.

/// Asks all ranks with one request: parts[i] is the operation of rank i. Operands of ranks in other processes are
/// remote buffers.
TROUPE_API troupe_code troupe_world_ask(troupe_world* world, const troupe_operation* parts, size_t count,
                                        const troupe_request_options* options, troupe_reply** made,
                                        troupe_error** error);
/// Asks all ranks for \p what with the memory send[i] and recv[i] in place of its operands; \p count ranks. Both arrays
/// may be NULL, and their elements too, where no memory is used.
TROUPE_API troupe_code troupe_world_ask_each(troupe_world* world, const troupe_operation* what,
                                             const troupe_buffer* const* send, const troupe_buffer* const* recv,
                                             size_t count, const troupe_request_options* options, troupe_reply** made,
                                             troupe_error** error);
/// Copies all of \p from to the front of \p to on the stream of \p rank; either may be host memory.
TROUPE_API troupe_code troupe_world_copy(troupe_world* world, int32_t rank, const troupe_buffer* from,
                                         const troupe_buffer* to, const troupe_request_options* options,
                                         troupe_reply** made, troupe_error** error);

/// Makes a client of \p rank of this process in the lane \p name (NULL: the default lane): the k-th collectives that
/// the ranks' clients request in lanes of one name are one operation. A lane has one client at each rank.
TROUPE_API troupe_code troupe_lane_create(troupe_world* world, int32_t rank, const char* name, troupe_lane** made,
                                          troupe_error** error);
/// Asks the rank for \p what. Order: that of the calls, also on the rank's GPU.
TROUPE_API troupe_code troupe_lane_ask(troupe_lane* lane, const troupe_operation* what,
                                       const troupe_request_options* options, troupe_reply** made,
                                       troupe_error** error);
/// Sets the epoch of later requests. After a rebuild all requests are refused (stale_epoch) until this is called: bring
/// the ranks to one state first, for example that of the last commit (docs/recovery.md).
TROUPE_API troupe_code troupe_lane_acknowledge(troupe_lane* lane, uint64_t epoch, troupe_error** error);
/// Withdraws the request with the index \p position, from 0 in the acknowledged epoch, unless all its peers have asked.
TROUPE_API troupe_code troupe_lane_cancel(troupe_lane* lane, uint64_t position, troupe_error** error);
/// Withdraws the requests that wait for their peers, frees the lane for another client, and frees the handle.
TROUPE_API void troupe_lane_free(troupe_lane* lane);

/// Waits for the answer, at most \p at_most_ns (0: does not wait). Returns TROUPE_WAITING if there is none yet: the
/// request goes on. Else TROUPE_OK, and fills \p completion (may be NULL), whose size the caller sets; or the code of
/// the failure. May be called again, with the same result.
TROUPE_API troupe_code troupe_reply_wait(const troupe_reply* reply, int64_t at_most_ns, troupe_completion* completion,
                                         troupe_error** error);
/// Waits in the same way until the request, which was made in two steps, is in the GPUs' queues. Returns the code of
/// its failure if it does not get there. Errors: invalid_argument (it was made in one step).
TROUPE_API troupe_code troupe_reply_wait_enqueued(const troupe_reply* reply, int64_t at_most_ns, troupe_error** error);
/// Makes later work in \p stream, a stream of the device of \p rank, wait on the device for this rank's part of a
/// request that troupe_reply_wait_enqueued() has found enqueued. It promises order, never success: work behind it runs
/// whether the request succeeds or not (docs/overlap.md). Errors: invalid_argument (not enqueued, or no part of this
/// rank).
TROUPE_API troupe_code troupe_reply_order(const troupe_reply* reply, troupe_world* world, int32_t rank, void* stream,
                                          troupe_error** error);
/// Frees the handle. The request goes on.
TROUPE_API void troupe_reply_free(troupe_reply* reply);

// Plans ---------------------------------------------------------------------------------------------------------------

typedef struct troupe_plan_options {
  size_t size;
  int64_t deadline_ns; ///< Longest time for the capture; 0: as for forming a world.
  const char* name;    ///< Over processes: captures of one name are one plan. NULL: the n-th unnamed ones are.
} troupe_plan_options;

/// Captures a plan of \p count requests to all ranks, which TROUPE_REPLAY launches with one message: operation
/// steps[k * ranks + r] is the part of rank r in request k. Over processes every process makes the call with the parts
/// of its own rank alone, and \p ranks is 1. \p options may be NULL. Waits. Lifetime: the plan holds the memory of its
/// requests; it can be replayed until the world ends.
TROUPE_API troupe_code troupe_world_capture(troupe_world* world, const troupe_operation* steps, size_t count,
                                            size_t ranks, const troupe_plan_options* options, troupe_plan** made,
                                            troupe_error** error);
/// Frees the handle. Replays in flight hold the plan.
TROUPE_API void troupe_plan_free(troupe_plan* plan);

// Functions at ranks --------------------------------------------------------------------------------------------------

/// The arguments of a function that a request calls. Valid during the call.
typedef struct troupe_rank_call {
  size_t size;
  void* stream; ///< The rank's stream (a cudaStream_t; not one with the mock), whose device is current.
  uint64_t epoch;
  int32_t rank;
  int32_t world_size;
  void* const* addresses; ///< The address of each argument …
  const size_t* sizes;    ///< … and its size in bytes.
  size_t argument_count;
  const void* values;
  size_t value_bytes;
} troupe_rank_call;

/// A function that enqueues work in the rank's stream: kernels and copies. It runs on the thread that launches the
/// requests of the rank's GPU, at its place in their order, so it must neither wait for the GPU nor block. Returns 0;
/// anything else ends the epoch, as a failed launch does. The calls for one rank come one after another.
typedef int32_t (*troupe_rank_callback)(void* user, const troupe_rank_call* call);

/// Registers a function for the ranks of this process, in this world and its sub-worlds, in place of an earlier one of
/// its name. \p forget (may be NULL) is called with \p user when the world and the last request have released the
/// function; if this fails, it is not called. \p made may be NULL: drivers and other processes call it by its name.
TROUPE_API troupe_code troupe_world_register_function(troupe_world* world, const char* name,
                                                      troupe_rank_callback function, void* user,
                                                      void (*forget)(void* user), troupe_function** made,
                                                      troupe_error** error);
/// Frees the handle; the function stays registered.
TROUPE_API void troupe_function_free(troupe_function* function);

// Worlds over processes: drivers, controllers -------------------------------------------------------------------------

/// Joins a world over processes as a process without a rank or a GPU: control.address and the token name its controller
/// (docs/drivers.md). Does not wait for the world: troupe_driver_wait_ready(). \p settings may be NULL.
TROUPE_API troupe_code troupe_driver_create(const troupe_settings* settings, troupe_driver** made,
                                            troupe_error** error);
/// Leaves. Pending requests are answered (abandoned, unknown outcome). Not in a callback of the driver.
TROUPE_API void troupe_driver_free(troupe_driver* driver);
TROUPE_API troupe_code troupe_driver_status(const troupe_driver* driver, troupe_status** made, troupe_error** error);
/// As troupe_world_wait_ready().
TROUPE_API troupe_code troupe_driver_wait_ready(const troupe_driver* driver, uint64_t after, int64_t at_most_ns,
                                                troupe_status** made, troupe_error** error);
/// As troupe_world_on_event().
TROUPE_API troupe_code troupe_driver_on_event(troupe_driver* driver, troupe_status_callback heard, void* user,
                                              void (*forget)(void* user), troupe_error** error);
/// As troupe_world_find().
TROUPE_API troupe_code troupe_driver_find(const troupe_driver* driver, int32_t rank, const char* name,
                                          int64_t deadline_ns, troupe_remote_buffer* handle, troupe_error** error);
/// Allocates device memory at \p rank, which its process holds until troupe_driver_release(), or until some seconds
/// after the end of the driver. Waits.
TROUPE_API troupe_code troupe_driver_allocate(troupe_driver* driver, int32_t rank, size_t size_bytes,
                                              int64_t deadline_ns, troupe_remote_buffer* handle, troupe_error** error);
TROUPE_API troupe_code troupe_driver_release(troupe_driver* driver, const troupe_remote_buffer* handle,
                                             troupe_error** error);
/// Copies the present contents of exported host memory, at most a mebibyte, to \p to. Waits. They are read without
/// regard to requests in flight: wait first for the answer of the request that writes them.
TROUPE_API troupe_code troupe_driver_read(const troupe_driver* driver, const troupe_remote_buffer* handle, void* to,
                                          size_t size_bytes, int64_t deadline_ns, troupe_error** error);
/// As troupe_world_ask(): all operands are remote buffers.
TROUPE_API troupe_code troupe_driver_ask(troupe_driver* driver, const troupe_operation* parts, size_t count,
                                         const troupe_request_options* options, troupe_reply** made,
                                         troupe_error** error);
/// As troupe_world_ask_each().
TROUPE_API troupe_code troupe_driver_ask_each(troupe_driver* driver, const troupe_operation* what,
                                              const troupe_buffer* const* send, const troupe_buffer* const* recv,
                                              size_t count, const troupe_request_options* options, troupe_reply** made,
                                              troupe_error** error);
/// Captures a plan called options->name at all ranks, as troupe_world_capture(); TROUPE_REPLAY names it by
/// troupe_operation.name. The answer arrives as that of a request. If it succeeds, it replaces an earlier plan of this
/// name. The ranks hold it until troupe_driver_drop_plan(), the end of the epoch, or some seconds after the end of the
/// driver.
TROUPE_API troupe_code troupe_driver_capture(troupe_driver* driver, const troupe_operation* steps, size_t count,
                                             size_t ranks, const troupe_plan_options* options, troupe_reply** made,
                                             troupe_error** error);
TROUPE_API troupe_code troupe_driver_drop_plan(troupe_driver* driver, const char* name, troupe_error** error);

/// Planned changes of the ranks of a world. Since version 2.
enum {
  TROUPE_CHANGE_NONE = 0,  ///< Nothing changes: only the processes are wanted.
  TROUPE_CHANGE_LEAVE = 1, ///< The process of a place leaves the world.
  TROUPE_CHANGE_DRAIN = 2, ///< All processes of a host leave the world, spares included.
  TROUPE_CHANGE_JOIN = 3   ///< A process is to take a free place.
};
typedef struct troupe_rank_change {
  size_t size;
  int32_t kind;      ///< TROUPE_CHANGE_*.
  int32_t place;     ///< TROUPE_CHANGE_LEAVE, TROUPE_CHANGE_JOIN (-1: the first that is free).
  const char* host;  ///< TROUPE_CHANGE_DRAIN: the host, as troupe_process_info names it; else NULL.
  int32_t renumbers; ///< 1 if ranks that stay may get other numbers.
  int32_t reserved;  ///< 0.
} troupe_rank_change;
/// A process of a world. Texts live as long as the troupe_processes; none is NULL.
typedef struct troupe_process_info {
  size_t size;
  const char* name; ///< The launcher's name for it, else its host and process id.
  const char* host;
  int64_t pid;
  int32_t place;      ///< -1: it stands by.
  int32_t rank;       ///< In the present epoch; -1: none.
  int32_t is_leaving; ///< 1 if it leaves as planned.
  int32_t is_away;    ///< 1 if it is not connected to the controller, which expects it to return.
} troupe_process_info;

/// Makes a planned change of the ranks (docs/processes.md) and waits until it is done. Processes that stand by take the
/// places of those that leave, or the world goes on with fewer ranks; the others lose no request. \p made receives the
/// processes afterwards; it may be NULL. Errors: invalid_argument (what is named does not exist; too few ranks would
/// remain; ranks would get other numbers; the place has a process), rebuilding (the world does not serve now),
/// deadline_exceeded (no process has joined), stopping; then nothing has changed. Since version 2.
TROUPE_API troupe_code troupe_driver_change(troupe_driver* driver, const troupe_rank_change* change,
                                            troupe_processes** made, troupe_error** error);
TROUPE_API size_t troupe_processes_count(const troupe_processes* processes);
/// Reads process number \p index, ranks first.
TROUPE_API troupe_code troupe_processes_get(const troupe_processes* processes, size_t index, troupe_process_info* info);
TROUPE_API void troupe_processes_free(troupe_processes* processes);

typedef struct troupe_controller_options {
  size_t size;
  int32_t processes;    ///< The number of processes, with one rank each.
  int32_t port;         ///< 0: any free port.
  const char* host;     ///< The address of this machine's loopback to listen on; NULL: 127.0.0.1.
  const char* token;    ///< What a joining process must present. Not empty.
  const char* policy;   ///< "fail_fast", "keep_size" or "shrink"; NULL: keep_size.
  int32_t smallest;     ///< The smallest number of ranks to which a world shrinks; 0: 1.
  int64_t gather_ns;    ///< Limit until all processes have joined; 0: 60 s.
  int64_t suspicion_ns; ///< Silence after which a process counts as lost; 0: 10 s.
} troupe_controller_options;

/// Starts the controller of a world over processes in this process, on threads of its own: beside rank 0, or in a
/// process of its own. `troupe launch` has one, and does more. Errors: invalid_argument (terms, no token, a port in
/// use).
TROUPE_API troupe_code troupe_controller_create(const troupe_controller_options* options, troupe_controller** made,
                                                troupe_error** error);
/// Leaves the processes without a controller: call troupe_controller_stop() first to let them finish.
TROUPE_API void troupe_controller_free(troupe_controller* controller);
/// Returns "HOST:PORT", the setting control.address of its processes and drivers.
TROUPE_API troupe_code troupe_controller_address(const troupe_controller* controller, char* text, size_t text_bytes,
                                                 size_t* length, troupe_error** error);
/// Tells all processes to finish their work and leave.
TROUPE_API troupe_code troupe_controller_stop(troupe_controller* controller, troupe_error** error);
/// Waits until the last process has left or the world has failed. Returns TROUPE_OK if all finished their work,
/// TROUPE_WAITING after \p at_most_ns, else why the world has ended.
TROUPE_API troupe_code troupe_controller_wait(troupe_controller* controller, int64_t at_most_ns, troupe_error** error);

#ifdef __cplusplus
} // extern "C"
#endif

#endif // TROUPE_TROUPE_H

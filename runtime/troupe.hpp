/// Includes everything that a program with threads and futures needs, as <troupe/troupe.hpp>. It does not include CAF;
/// clients made of actors include <troupe/actors.hpp>. Files that only handle buffers and requests can include
/// <troupe/collectives/operation/request.hpp> instead.
#pragma once

// device: memory, streams and events of a GPU or of the mock, and the errors of every layer.
#include <troupe/device/device.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/per_rank.hpp>
#include <troupe/device/stream.hpp>

// completion: the outcome of a request.
#include <troupe/completion/reply/outcome.hpp>

// collectives: the operations that can be requested.
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/collective_methods.hpp>
#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/reduction.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/pipeline/fault_report.hpp>
#include <troupe/collectives/progress/absence_report.hpp>

// actors: the events of a world.
#include <troupe/actors/world/world_event.hpp>

// runtime: the entry point of a program, and handles for plain threads.
#include <troupe/runtime/checkpoints.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/mesh.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/runtime/world.hpp>
#include <troupe/runtime/world_group.hpp>

// interop: arrays, tensors, streams, coroutines and senders of other libraries.
#include <troupe/runtime/interop/awaitable_reply.hpp>
#include <troupe/runtime/interop/client_stream.hpp>
#include <troupe/runtime/interop/dlpack.hpp>
#include <troupe/runtime/interop/request_sender.hpp>
#include <troupe/runtime/interop/views.hpp>

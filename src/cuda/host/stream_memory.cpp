// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/host/stream_memory.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/host/own_stream.hpp"

namespace openvc::cuda {
namespace {

/// Frees memory in the order of the stream of its allocation, unless somebody else has to free it.
struct FreeOnStream {
  cudaStream_t stream;
  int device;
  bool armed = true;

  void operator()(std::byte* block) const noexcept {
    if (!armed) return;
    try {
      const DeviceGuard guard(device);  // a null stream is that of the current device
      ignore(cudaFreeAsync(block, stream));
    } catch (const Error&) {  // as in ignore()
    }
  }
};

std::shared_ptr<std::byte> allocate_on_stream(std::size_t bytes, int device, void* stream) {
  const DeviceGuard guard(device);
  const auto queue = static_cast<cudaStream_t>(stream);
  void* memory = nullptr;
  check(cudaMallocAsync(&memory, bytes, queue), "allocating device memory");
  return {static_cast<std::byte*>(memory), FreeOnStream{queue, device}};
}

}  // namespace

std::shared_ptr<std::byte> allocate(std::size_t bytes, int device, const Execution& execution) {
  if (!execution.allocate) return allocate_on_stream(bytes, device, execution.stream);
  std::shared_ptr<std::byte> memory = execution.allocate(bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.get());
  if (memory == nullptr || address % kMemoryAlignment != 0) {
    throw Error(ErrorCode::invalid_value,
                "execution.allocate: returned address " + std::to_string(address) + " for " +
                    std::to_string(bytes) + " bytes; expected device memory at a multiple of " +
                    std::to_string(kMemoryAlignment) +
                    ". Throw std::bad_alloc where there is no memory.");
  }
  return memory;
}

void StreamMemory::EventDelete::operator()(CUevent_st* event) const noexcept {
  ignore(cudaEventDestroy(event));
}

StreamMemory::Place StreamMemory::place_of(void* stream) {
  const auto queue = static_cast<cudaStream_t>(stream);
  Place place;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  check(cudaStreamGetCaptureInfo(queue, &status, &id), "asking whether a stream is being captured");
  if (status != cudaStreamCaptureStatusNone) {
    // A stream that is being captured has no id to be asked for. It cannot be destroyed either, so
    // its handle tells it from the others of the capture, with which alone it is compared.
    place.capture = {true, id};
    place.stream = reinterpret_cast<std::uintptr_t>(stream);
  } else {
    check(cudaStreamGetId(queue, &place.stream), "identifying a stream");
  }
  return place;
}

StreamMemory::Event StreamMemory::make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  return Event(event);
}

StreamMemory::StreamMemory(std::size_t bytes, int device, const Execution& execution)
    : device_(device),
      stream_(execution.stream),
      from_caller_(static_cast<bool>(execution.allocate)),
      memory_(allocate(bytes, device, execution)) {}

void StreamMemory::outlive_call() {
  const DeviceGuard guard(device_);
  origin_ = place_of(stream_);
  Event event = make_event();
  check(cudaEventRecord(event.get(), static_cast<cudaStream_t>(stream_)),
        "recording the end of the preparation");
  filled_ = event.get();
  works_.push_back({origin_.stream, std::move(event)});
  if (auto* free = std::get_deleter<FreeOnStream>(memory_)) free->armed = false;
  outlives_call_ = true;
}

StreamMemory::Use StreamMemory::begin_use(const Execution& execution) {
  const DeviceGuard guard(device_);
  const Place place = place_of(execution.stream);
  if (place.capture != origin_.capture) {
    if (!origin_.capture.active) {
      // A graph may run on any stream: it needs memory that is filled before the first time.
      const RelaxedCapture relaxed;
      check(cudaEventSynchronize(filled_), "waiting for the preparation");
    }
    return {};
  }
  const bool elsewhere = place.stream != origin_.stream;
  if (elsewhere) {
    check(cudaStreamWaitEvent(static_cast<cudaStream_t>(execution.stream), filled_, 0),
          "waiting for the preparation");
  } else if (from_caller_ || origin_.capture.active) {
    return {};  // freed in the order of this stream
  }
  if (from_caller_ && execution.record_use) {
    execution.record_use(memory_);
    return {};
  }
  return {execution.stream, end_of_work(place.stream)};
}

void StreamMemory::end_use(const Use& use) const {
  if (use.end == nullptr) return;
  const DeviceGuard guard(device_);
  check(cudaEventRecord(use.end, static_cast<cudaStream_t>(use.stream)),
        "recording the use of prepared inputs");
}

CUevent_st* StreamMemory::end_of_work(unsigned long long stream) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(works_, stream, &LastWork::stream);
  if (known != works_.end()) return known->end.get();
  works_.push_back({stream, make_event()});
  return works_.back().end.get();
}

void StreamMemory::read(const char* what, const std::function<void(void* stream)>& work) const {
  if (!outlives_call_) return work(stream_);
  const DeviceGuard guard(device_);
  const RelaxedCapture relaxed;
  if (!origin_.capture.active) {
    check(cudaEventSynchronize(filled_), "waiting for the preparation");
  } else if (place_of(stream_).capture != origin_.capture) {
    check(cudaDeviceSynchronize(), "waiting for the graph that prepares the inputs");
  } else {
    throw Error(
        ErrorCode::unsupported,
        std::string(what) +
            ": the inputs belong to a CUDA graph that is still being captured; expected "
            "inputs that have been prepared. Ask when the graph has run, or prepare outside "
            "of the capture.");
  }
  const OwnStream stream;
  work(stream.get());
}

StreamMemory::~StreamMemory() {
  if (!outlives_call_) return;
  try {
    const DeviceGuard guard(device_);
    const RelaxedCapture relaxed;
    if (origin_.capture.active) {
      release_captured();
    } else if (from_caller_) {
      // The allocator knows of the first stream alone.
      wait_for(works_.begin() + 1);
    } else {
      release_behind_work();
    }
  } catch (const Error&) {  // as in ignore()
  }
}

void StreamMemory::wait_for(std::vector<LastWork>::const_iterator first) const noexcept {
  for (auto work = first; work != works_.end(); ++work) {
    ignore(cudaEventSynchronize(work->end.get()));
  }
}

void StreamMemory::release_behind_work() const {
  try {
    const OwnStream stream;
    for (const LastWork& work : works_) {
      ignore(cudaStreamWaitEvent(stream.get(), work.end.get(), 0));
    }
    ignore(cudaFreeAsync(memory_.get(), stream.get()));
  } catch (const Error&) {  // no memory for a stream
    wait_for(works_.begin());
    ignore(cudaFree(memory_.get()));
  }
}

void StreamMemory::release_captured() const {
  const bool only_origin = works_.size() == 1;
  if (from_caller_ && only_origin) return;
  const auto queue = static_cast<cudaStream_t>(stream_);
  if (place_of(stream_).capture == origin_.capture) {
    for (auto work = works_.begin() + 1; work != works_.end(); ++work) {
      ignore(cudaStreamWaitEvent(queue, work->end.get(), 0));
    }
    if (!from_caller_) ignore(cudaFreeAsync(memory_.get(), queue));
  } else if (!from_caller_) {
    check(cudaDeviceSynchronize(), "waiting for the graph that prepares the inputs");
    ignore(cudaFree(memory_.get()));  // fails if the graph has not run: it holds no memory then
  }
}

}  // namespace openvc::cuda

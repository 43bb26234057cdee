// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "openvc/options.hpp"

struct CUevent_st;  // cudaEvent_t is a pointer to it

namespace openvc::cuda {

/// What Execution::allocate promises, in bytes.
inline constexpr std::size_t kMemoryAlignment = 256;

/// Device memory that kernels on the stream of `execution` can use at once: from its allocator, or
/// by cudaMallocAsync, freed in the order of the stream. Throws openvc::Error, also for memory that
/// an allocator should not have returned.
std::shared_ptr<std::byte> allocate(std::size_t bytes, int device, const Execution& execution);

/// Device memory that is filled once, on the stream of its allocation, and then read on any stream
/// of its device.
///
/// While it belongs to one call it costs nothing: that stream orders filling, reading and freeing.
/// After outlive_call() it keeps an event per stream. Other streams wait for the filling; the
/// memory is freed behind the last work of every stream; no stream has to live as long.
///
/// Graphs: memory that was filled outside of a capture may be read inside one. The call that is
/// captured waits on the host until it is filled, and the memory has to live as long as the graph.
/// Memory that is filled inside a capture is part of that graph, as its stream orders it: free it
/// before the capture ends, or keep its stream alive until then; readers outside of the capture
/// have to run after the graph. Any number of threads may read.
class StreamMemory {
 public:
  StreamMemory(std::size_t bytes, int device, const Execution& execution);
  ~StreamMemory();
  StreamMemory(const StreamMemory&) = delete;
  StreamMemory& operator=(const StreamMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return memory_.get(); }

  /// What the stream of the allocation has been given so far fills the memory; from now on the
  /// memory does not rely on that stream.
  void outlive_call();

  /// Calls work(), which queues readers on the stream of `execution`.
  template <class Work>
  void use(const Execution& execution, const Work& work) {
    if (!outlives_call_) return work();
    const Use use = begin_use(execution);
    work();
    end_use(use);
  }

  /// Calls work(stream) with a stream behind the filling; work() waits for what it queues. `what`
  /// names the result in messages.
  void read(const char* what, const std::function<void(void* stream)>& work) const;

 private:
  /// A capture of a stream into a graph, or none.
  struct Capture {
    bool active = false;
    unsigned long long id = 0;
    bool operator==(const Capture&) const = default;
  };
  /// A stream at one moment: its id, inside a capture its handle. Handles may be reused after a
  /// stream has been destroyed, ids are not.
  struct Place {
    unsigned long long stream = 0;
    Capture capture;
  };
  struct EventDelete {
    void operator()(CUevent_st* event) const noexcept;
  };
  using Event = std::unique_ptr<CUevent_st, EventDelete>;
  /// The end of the last work that a stream has been given.
  struct LastWork {
    unsigned long long stream = 0;
    Event end;
  };
  struct Use {
    void* stream = nullptr;
    CUevent_st* end = nullptr;  // to be recorded; null if nobody needs it
  };

  static Place place_of(void* stream);
  static Event make_event();
  Use begin_use(const Execution& execution);
  void end_use(const Use& use) const;
  CUevent_st* end_of_work(unsigned long long stream);
  void wait_for(std::vector<LastWork>::const_iterator first) const noexcept;
  void release_behind_work() const;
  void release_captured() const;

  int device_;
  void* stream_;      // of the allocation
  bool from_caller_;  // allocated by Execution::allocate
  std::shared_ptr<std::byte> memory_;

  // From outlive_call() on:
  bool outlives_call_ = false;
  Place origin_;                  // of the filling
  CUevent_st* filled_ = nullptr;  // in works_
  std::mutex mutex_;              // of works_
  std::vector<LastWork> works_;   // the first is the stream of the filling
};

}  // namespace openvc::cuda

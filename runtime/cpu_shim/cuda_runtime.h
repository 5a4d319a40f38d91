// A stand-in for the CUDA runtime on a CPU: enough of it to run programs that latecomer generates, unmodified.
//
// Streams are queues with a thread each; kernels run their grid as a loop; memory is the host's. No shared memory, no
// __syncthreads, no warp intrinsics. Devices are names: LC_SHIM_DEVICES of them (64), each with its own null stream.
// Names are CUDA's (CUDA Runtime API reference); no CUDA header is needed or used.
#ifndef LATECOMER_SHIM_CUDA_RUNTIME_H
#define LATECOMER_SHIM_CUDA_RUNTIME_H

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault
};
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed
};
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2 };

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace lc_shim {

using Work = std::function<cudaError_t()>;

inline int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// A queue of work and the thread that does it, in order. After the first error the rest is dropped.
struct Stream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> queue;
  bool busy = false, ending = false, capturing = false;
  cudaError_t error = cudaSuccess;
  std::vector<Work> captured;
  std::thread thread{[this] { run(); }};

  cudaError_t add(Work work) {
    std::lock_guard<std::mutex> lock(mutex);
    if (capturing) {
      captured.push_back(std::move(work));
      return cudaSuccess;
    }
    queue.push_back(std::move(work));
    changed.notify_all();
    return cudaSuccess;
  }
  cudaError_t wait() {
    std::unique_lock<std::mutex> lock(mutex);
    if (capturing) return cudaErrorStreamCaptureUnsupported;
    changed.wait(lock, [this] { return queue.empty() && !busy; });
    return error;
  }
  cudaError_t query() {
    std::lock_guard<std::mutex> lock(mutex);
    if (capturing) return cudaErrorStreamCaptureUnsupported;
    return queue.empty() && !busy ? error : cudaErrorNotReady;
  }
  void end() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      ending = true;
      changed.notify_all();
    }
    thread.join();
  }

 private:
  void run() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ending || !queue.empty(); });
      if (queue.empty()) return;
      const Work work = std::move(queue.front());
      queue.pop_front();
      if (error != cudaSuccess) continue;
      busy = true;
      lock.unlock();
      const cudaError_t status = work();
      lock.lock();
      busy = false;
      if (status != cudaSuccess) {
        error = status;
        queue.clear();
      }
      changed.notify_all();
    }
  }
};

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t recorded = 0, happened = 0;  // counts of records queued and done
  int64_t time_ns = 0;
};

struct Graph {
  std::vector<Work> work;
};

// Device memory by address, numbered per device in order of allocation: what a log calls a place.
struct Memory {
  struct Block {
    size_t bytes;
    int device, number;
  };
  std::mutex mutex;
  std::map<const char *, Block> blocks;
  std::map<int, int> count;
  std::map<int, Stream *> null_streams;
};
inline Memory &memory() {
  static Memory *const all = new Memory;  // lives as long as the process, like the threads that use it
  return *all;
}
inline thread_local int device = 0;

// "2+4096": byte 4096 of the third allocation on its device; "-": not device memory.
inline std::string place(const void *address) {
  Memory &m = memory();
  std::lock_guard<std::mutex> lock(m.mutex);
  auto after = m.blocks.upper_bound(static_cast<const char *>(address));
  if (after == m.blocks.begin()) return "-";
  const auto &block = *--after;
  const size_t offset = static_cast<const char *>(address) - block.first;
  if (offset >= block.second.bytes) return "-";
  return std::to_string(block.second.number) + "+" + std::to_string(offset);
}

inline Stream &stream_of(Stream *stream) {
  if (stream) return *stream;
  Memory &m = memory();
  std::lock_guard<std::mutex> lock(m.mutex);
  Stream *&null = m.null_streams[device];
  if (!null) null = new Stream;
  return *null;
}

}  // namespace lc_shim

typedef lc_shim::Stream *cudaStream_t;
typedef lc_shim::Event *cudaEvent_t;
typedef lc_shim::Graph *cudaGraph_t;
typedef lc_shim::Graph *cudaGraphExec_t;

inline const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorLaunchFailure: return "work on the stream has failed (the reason is on standard error)";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
  }
  return "unrecognized error code";
}

// -- devices ---------------------------------------------------------------------------------------------------------

inline cudaError_t cudaGetDeviceCount(int *count) {
  const char *text = getenv("LC_SHIM_DEVICES");
  *count = text ? atoi(text) : 64;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  int count;
  cudaGetDeviceCount(&count);
  if (device < 0 || device >= count) return cudaErrorInvalidDevice;
  lc_shim::device = device;
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int *device) {
  *device = lc_shim::device;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int) {
  *value = 1;
  return cudaSuccess;
}

// -- memory ----------------------------------------------------------------------------------------------------------

template <class T> cudaError_t cudaMalloc(T **address, size_t bytes) {
  const size_t rounded = (bytes + 255) / 256 * 256;
  char *made = static_cast<char *>(aligned_alloc(256, rounded ? rounded : 256));
  if (!made) return cudaErrorMemoryAllocation;
  memset(made, 0xcd, bytes);  // what nobody has written looks wrong
  lc_shim::Memory &m = lc_shim::memory();
  std::lock_guard<std::mutex> lock(m.mutex);
  m.blocks[made] = {bytes, lc_shim::device, m.count[lc_shim::device]++};
  *address = reinterpret_cast<T *>(made);
  return cudaSuccess;
}
inline cudaError_t cudaFree(void *address) {
  if (!address) return cudaSuccess;
  lc_shim::Memory &m = lc_shim::memory();
  {
    std::lock_guard<std::mutex> lock(m.mutex);
    if (!m.blocks.erase(static_cast<char *>(address))) return cudaErrorInvalidValue;
  }
  free(address);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                                   cudaStream_t stream = nullptr) {
  return lc_shim::stream_of(stream).add([=] {
    memcpy(to, from, bytes);
    return cudaSuccess;
  });
}
inline cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream = nullptr) {
  return lc_shim::stream_of(stream).add([=] {
    memset(to, value, bytes);
    return cudaSuccess;
  });
}
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  cudaMemcpyAsync(to, from, bytes, kind);
  return lc_shim::stream_of(nullptr).wait();
}
inline cudaError_t cudaMemset(void *to, int value, size_t bytes) {
  cudaMemsetAsync(to, value, bytes);
  return lc_shim::stream_of(nullptr).wait();
}

// -- streams, events, graphs -----------------------------------------------------------------------------------------

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
  *stream = new lc_shim::Stream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, 0); }
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  stream->end();
  delete stream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return lc_shim::stream_of(stream).wait(); }
inline cudaError_t cudaStreamQuery(cudaStream_t stream) { return lc_shim::stream_of(stream).query(); }

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  *event = new lc_shim::Event;
  return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr) {
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    ++event->recorded;
  }
  return lc_shim::stream_of(stream).add([event] {
    std::lock_guard<std::mutex> lock(event->mutex);
    ++event->happened;
    event->time_ns = lc_shim::now_ns();
    event->changed.notify_all();
    return cudaSuccess;
  });
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::unique_lock<std::mutex> lock(event->mutex);
  event->changed.wait(lock, [event] { return event->happened >= event->recorded; });
  return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned = 0) {
  int64_t until;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    until = event->recorded;
  }
  return lc_shim::stream_of(stream).add([event, until] {
    std::unique_lock<std::mutex> lock(event->mutex);
    event->changed.wait(lock, [=] { return event->happened >= until; });
    return cudaSuccess;
  });
}
inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  std::lock_guard<std::mutex> first(from->mutex);
  const int64_t start = from->time_ns;
  std::lock_guard<std::mutex> second(to->mutex);
  *ms = static_cast<float>(static_cast<double>(to->time_ns - start) / 1e6);
  return cudaSuccess;
}

inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  lc_shim::Stream &s = lc_shim::stream_of(stream);
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.capturing) return cudaErrorStreamCaptureUnsupported;
  s.capturing = true;
  s.captured.clear();
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  lc_shim::Stream &s = lc_shim::stream_of(stream);
  std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.capturing) return cudaErrorInvalidValue;
  s.capturing = false;
  *graph = new lc_shim::Graph{std::move(s.captured)};
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ready, cudaGraph_t graph, unsigned long long = 0) {
  *ready = new lc_shim::Graph(*graph);
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (const lc_shim::Work &work : graph->work) lc_shim::stream_of(stream).add(work);
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return cudaGraphDestroy(graph); }

// -- kernels ---------------------------------------------------------------------------------------------------------

struct cudaLaunchAttribute;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute *attrs = nullptr;
  unsigned numAttrs = 0;
};

template <class... Formal, class... Actual>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Formal...), Actual &&...values) {
  const dim3 grid = config->gridDim, block = config->blockDim;
  const std::function<void()> body = [kernel, arguments = std::make_tuple(static_cast<Formal>(values)...)] {
    std::apply(kernel, arguments);
  };
  return lc_shim::stream_of(config->stream).add([=] {
    gridDim = grid;
    blockDim = block;
    for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
      for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
          for (threadIdx.z = 0; threadIdx.z < block.z; ++threadIdx.z)
            for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y)
              for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) body();
    return cudaSuccess;
  });
}

inline long long clock64() { return lc_shim::now_ns(); }
inline void __nanosleep(unsigned ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }

#endif

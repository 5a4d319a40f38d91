// A stand-in for NCCL on a CPU: point-to-point with NCCL's blocking semantics, between threads or processes.
//
// * The calls of a group are one item of their stream; all of them progress together; the item ends when all have
//   ended. The k-th send from a to b meets the k-th receive of b from a.
// * Rendezvous: a send ends only when its receive has all of the data. NCCL buffers small messages; a program that
//   needs that is wrong, and hangs here.
// * Both ends of different size, or no progress anywhere for LC_SHIM_TIMEOUT_S seconds (10) while a rank waits: a
//   report on standard error of who waits for whom, and every stream of the communicator fails.
// * LC_SHIM_LOG=FILE appends a line per message: source, destination, bytes, number of the group at the source and at
//   the destination, place at the source and at the destination (see lc_shim::place), microseconds of the clock.
//
// Ranks share a file in /dev/shm (or TMPDIR) that is removed as soon as all have opened it.
// Names are NCCL's (NCCL User Guide, API); no NCCL header is needed or used.
#ifndef LATECOMER_SHIM_NCCL_H
#define LATECOMER_SHIM_NCCL_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
};
enum ncclDataType_t {
  ncclInt8 = 0, ncclChar = 0, ncclUint8 = 1, ncclInt32 = 2, ncclInt = 2, ncclUint32 = 3, ncclInt64 = 4, ncclUint64 = 5,
  ncclFloat16 = 6, ncclHalf = 6, ncclFloat32 = 7, ncclFloat = 7, ncclFloat64 = 8, ncclDouble = 8, ncclBfloat16 = 9,
};
enum ncclRedOp_t { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };
struct ncclUniqueId {
  char internal[128];
};

namespace lc_shim {

constexpr size_t kPiece = 32 << 10;  // bytes that move at once
constexpr int kPlanes = 2;           // point-to-point, collectives
constexpr int kShown = 8;            // waits of a rank that a report can show

struct Channel {
  bool send_posted, recv_posted, done;
  int send_group, recv_group;
  uint64_t send_bytes, recv_bytes, sent, received, filled;
  char send_place[40];
  unsigned char data[kPiece];
};
struct Wait {
  bool send;
  int peer;
  uint64_t bytes, moved;
};
struct RankState {
  pthread_cond_t changed;
  int group, waits;  // groups started; calls that have not ended, 0: the rank waits for nothing
  Wait shown[kShown];
};
struct Shared {
  std::atomic<int> ready;
  pthread_mutex_t mutex;
  int joined;
  bool failed;
  int64_t progress_ns;
  char message[4096];
  // RankState[ranks] and Channel[planes][ranks][ranks] follow
};

inline double timeout_s() {
  const char *text = getenv("LC_SHIM_TIMEOUT_S");
  return text ? atof(text) : 10.0;
}

inline size_t size_of(ncclDataType_t type) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[type];
}

// One file shared by the ranks of a communicator; opened once per process.
class Room {
 public:
  static std::shared_ptr<Room> open(const std::string &name, int ranks) {
    static std::mutex *const mutex = new std::mutex;
    static auto *const rooms = new std::map<std::string, std::weak_ptr<Room>>;
    std::lock_guard<std::mutex> lock(*mutex);
    std::shared_ptr<Room> room = (*rooms)[name].lock();
    if (!room) (*rooms)[name] = room = std::shared_ptr<Room>(new Room(name, ranks));
    return room;
  }
  ~Room() { munmap(base, bytes); }

  Shared &shared() const { return *reinterpret_cast<Shared *>(base); }
  RankState &rank(int r) const { return reinterpret_cast<RankState *>(base + aligned(sizeof(Shared)))[r]; }
  Channel &channel(int plane, int src, int dst) const {
    char *first = base + aligned(sizeof(Shared)) + aligned(sizeof(RankState) * ranks);
    return reinterpret_cast<Channel *>(first)[(static_cast<size_t>(plane) * ranks + src) * ranks + dst];
  }
  void lock() const { pthread_mutex_lock(&shared().mutex); }
  void unlock() const { pthread_mutex_unlock(&shared().mutex); }
  void progress() const { shared().progress_ns = now_ns(); }
  void wake(int r) const { pthread_cond_broadcast(&rank(r).changed); }

  // Returns false when `until_ns` has passed. The room is locked.
  bool wait(int r, int64_t until_ns) const {
    timespec when;
    when.tv_sec = until_ns / 1000000000;
    when.tv_nsec = until_ns % 1000000000;
    return pthread_cond_timedwait(&rank(r).changed, &shared().mutex, &when) != ETIMEDOUT;
  }
  // The room is locked.
  void fail(const std::string &message) const {
    if (shared().failed) return;
    shared().failed = true;
    snprintf(shared().message, sizeof shared().message, "%s", message.c_str());
    fprintf(stderr, "nccl (CPU stand-in): %s\n", message.c_str());
    fflush(stderr);
    for (int r = 0; r < ranks; ++r) wake(r);
  }

  const int ranks;
  const std::string path;

 private:
  char *base;
  size_t bytes;

  static size_t aligned(size_t size) { return (size + 63) / 64 * 64; }
  static std::string directory() {
    if (access("/dev/shm", W_OK) == 0) return "/dev/shm";
    const char *text = getenv("TMPDIR");
    return text ? text : "/tmp";
  }

  Room(const std::string &name, int n) : ranks(n), path(directory() + "/" + name) {
    bytes = aligned(sizeof(Shared)) + aligned(sizeof(RankState) * n) + sizeof(Channel) * kPlanes * n * n;
    int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    const bool mine = file >= 0;
    if (!mine) file = ::open(path.c_str(), O_RDWR);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
      fprintf(stderr, "nccl (CPU stand-in): cannot open %s: %s\n", path.c_str(), strerror(errno));
      abort();
    }
    base = static_cast<char *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    close(file);
    if (base == MAP_FAILED) abort();
    if (mine) initialise();
    while (shared().ready.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  }

  void initialise() {
    pthread_mutexattr_t shared_mutex;
    pthread_mutexattr_init(&shared_mutex);
    pthread_mutexattr_setpshared(&shared_mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared().mutex, &shared_mutex);
    pthread_condattr_t shared_condition;
    pthread_condattr_init(&shared_condition);
    pthread_condattr_setpshared(&shared_condition, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setclock(&shared_condition, CLOCK_MONOTONIC);
    for (int r = 0; r < ranks; ++r) pthread_cond_init(&rank(r).changed, &shared_condition);
    shared().progress_ns = now_ns();
    shared().ready.store(1, std::memory_order_release);
  }
};

// One call of a group.
struct Call {
  bool send;
  char *address;
  size_t bytes;
  int peer;
  size_t moved = 0;
  bool posted = false, ended = false;
};

}  // namespace lc_shim

struct ncclComm {
  std::shared_ptr<lc_shim::Room> room;
  int rank, device;
};
typedef ncclComm *ncclComm_t;

namespace lc_shim {

inline void log_message(const Channel &c, int src, int dst, const char *address) {
  static const int file = [] {
    const char *name = getenv("LC_SHIM_LOG");
    return name ? ::open(name, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
  }();
  if (file < 0) return;
  char line[200];
  const int length = snprintf(line, sizeof line, "%d %d %llu %d %d %s %s %lld\n", src, dst,
                              static_cast<unsigned long long>(c.recv_bytes), c.send_group, c.recv_group, c.send_place,
                              place(address).c_str(), static_cast<long long>(now_ns() / 1000));
  if (write(file, line, static_cast<size_t>(length)) != length) abort();
}

// One rank's calls of one group, run by its stream.
class Group {
 public:
  Group(const ncclComm &who, std::vector<Call> list, int number)
      : comm(who), room(*who.room), calls(std::move(list)), plane(number) {}

  cudaError_t run() {
    room.lock();
    RankState &me = room.rank(comm.rank);
    if (plane == 0) ++me.group;
    bool ended = pass();
    while (!ended && !room.shared().failed) {
      show(me);
      const auto patience = static_cast<int64_t>(timeout_s() * 1e9);
      const int64_t until = room.shared().progress_ns + patience;
      const bool in_time = room.wait(comm.rank, until);
      if (!in_time && now_ns() >= room.shared().progress_ns + patience) room.fail(report());
      ended = pass();
    }
    me.waits = 0;
    const bool failed = room.shared().failed;
    room.unlock();
    return failed ? cudaErrorLaunchFailure : cudaSuccess;
  }

 private:
  const ncclComm &comm;
  const Room &room;
  std::vector<Call> calls;
  const int plane;

  // Move what can be moved now; true when all calls have ended.
  bool pass() {
    bool all = true;
    std::vector<std::pair<int, bool>> behind;  // (peer, direction) with an earlier call that has not ended
    for (Call &call : calls) {
      if (call.ended || room.shared().failed) continue;
      const std::pair<int, bool> lane(call.peer, call.send);
      if (std::find(behind.begin(), behind.end(), lane) == behind.end()) {
        if (call.send)
          send(call, room.channel(plane, comm.rank, call.peer));
        else
          receive(call, room.channel(plane, call.peer, comm.rank));
      }
      if (!call.ended) behind.push_back(lane);
      all = all && call.ended;
    }
    return all && !room.shared().failed;
  }

  void moved(int peer) {
    room.progress();
    room.wake(peer);
  }

  void send(Call &call, Channel &c) {
    if (!call.posted) {
      if (c.send_posted) return;  // another stream of this rank is first
      c.send_posted = call.posted = true;
      c.send_bytes = call.bytes;
      c.sent = 0;
      c.send_group = room.rank(comm.rank).group;
      snprintf(c.send_place, sizeof c.send_place, "%s", place(call.address).c_str());
      moved(call.peer);
    }
    if (c.recv_posted && !c.done) {
      if (!same_size(c, comm.rank, call.peer)) return;
      if (c.filled == 0 && c.sent < c.send_bytes) {
        c.filled = std::min<uint64_t>(kPiece, c.send_bytes - c.sent);
        memcpy(c.data, call.address + c.sent, c.filled);
        c.sent += c.filled;
        call.moved = c.sent;
        moved(call.peer);
      }
    }
    if (c.done) {
      c.send_posted = c.done = false;
      call.ended = true;
      moved(call.peer);
    }
  }

  void receive(Call &call, Channel &c) {
    if (!call.posted) {
      if (c.recv_posted) return;
      c.recv_posted = call.posted = true;
      c.recv_bytes = call.bytes;
      c.received = 0;
      c.recv_group = room.rank(comm.rank).group;
      moved(call.peer);
    }
    if (!c.send_posted || c.done || !same_size(c, call.peer, comm.rank)) return;
    if (c.filled) {
      memcpy(call.address + c.received, c.data, c.filled);
      c.received += c.filled;
      c.filled = 0;
      call.moved = c.received;
      moved(call.peer);
    }
    if (c.received == c.recv_bytes) {
      if (plane == 0) log_message(c, call.peer, comm.rank, call.address);
      c.recv_posted = false;
      c.done = call.ended = true;
      moved(call.peer);
    }
  }

  bool same_size(const Channel &c, int src, int dst) {
    if (c.send_bytes == c.recv_bytes) return true;
    room.fail("rank " + std::to_string(src) + " sends " + std::to_string(c.send_bytes) + " bytes to rank " +
              std::to_string(dst) + " in its group " + std::to_string(c.send_group) + ", which receives " +
              std::to_string(c.recv_bytes) + " in its group " + std::to_string(c.recv_group));
    return false;
  }

  // For the report of another rank: what this one waits for.
  void show(RankState &me) const {
    me.waits = 0;
    for (const Call &call : calls) {
      if (call.ended) continue;
      if (me.waits < kShown) me.shown[me.waits] = {call.send, call.peer, call.bytes, call.moved};
      ++me.waits;
    }
  }

  std::string report() const {
    char head[80];
    snprintf(head, sizeof head, "deadlock: nothing has moved for %.1f s", timeout_s());
    std::string text = head;
    for (int r = 0; r < room.ranks; ++r) {
      const RankState &state = room.rank(r);
      text += "\n  rank " + std::to_string(r) + ", group " + std::to_string(state.group) + ": ";
      if (state.waits == 0) text += "waits for nobody (no group is under way)";
      for (int w = 0; w < std::min(state.waits, kShown); ++w) {
        const Wait &wait = state.shown[w];
        text += std::string(w ? ", " : "waits for rank ") + (w ? "rank " : "") + std::to_string(wait.peer) + " to " +
                (wait.send ? "take " : "send ") + std::to_string(wait.bytes) + " bytes";
      }
      if (state.waits > kShown) text += ", and " + std::to_string(state.waits - kShown) + " more";
    }
    return text;
  }
};

// Calls between ncclGroupStart and ncclGroupEnd, of this thread.
struct Pending {
  int depth = 0;
  struct Item {
    ncclComm *comm;
    cudaStream_t stream;
    std::vector<Call> calls;
  };
  std::vector<Item> items;
};
inline thread_local Pending pending;

inline ncclResult_t add_call(const Call &call, ncclComm *comm, cudaStream_t stream) {
  if (call.peer < 0 || call.peer >= comm->room->ranks) return ncclInvalidArgument;
  for (Pending::Item &item : pending.items)
    if (item.comm == comm && item.stream == stream) {
      item.calls.push_back(call);
      return ncclSuccess;
    }
  pending.items.push_back({comm, stream, {call}});
  return ncclSuccess;
}

inline double load(ncclDataType_t type, const void *data, size_t i) {
  switch (type) {
    case ncclFloat: return static_cast<const float *>(data)[i];
    case ncclDouble: return static_cast<const double *>(data)[i];
    case ncclHalf: return __half2float(static_cast<const __half *>(data)[i]);
    case ncclBfloat16: return __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[i]);
    case ncclInt32: return static_cast<const int32_t *>(data)[i];
    case ncclInt64: return static_cast<double>(static_cast<const int64_t *>(data)[i]);
    default: return static_cast<const int8_t *>(data)[i];
  }
}
inline void store(ncclDataType_t type, void *data, size_t i, double x) {
  switch (type) {
    case ncclFloat: static_cast<float *>(data)[i] = static_cast<float>(x); break;
    case ncclDouble: static_cast<double *>(data)[i] = x; break;
    case ncclHalf: static_cast<__half *>(data)[i] = __float2half_rn(static_cast<float>(x)); break;
    case ncclBfloat16: static_cast<__nv_bfloat16 *>(data)[i] = __float2bfloat16_rn(static_cast<float>(x)); break;
    case ncclInt32: static_cast<int32_t *>(data)[i] = static_cast<int32_t>(x); break;
    case ncclInt64: static_cast<int64_t *>(data)[i] = static_cast<int64_t>(x); break;
    default: static_cast<int8_t *>(data)[i] = static_cast<int8_t>(x); break;
  }
}

inline double combine(ncclRedOp_t op, double a, double b) {
  return op == ncclProd ? a * b : op == ncclMin ? std::min(a, b) : op == ncclMax ? std::max(a, b) : a + b;
}

// A plain AllReduce: everything to rank 0 and back. For barriers and for results to compare with.
inline cudaError_t all_reduce(const ncclComm &comm, const void *from, void *to, size_t count, ncclDataType_t type,
                              ncclRedOp_t op) {
  const int n = comm.room->ranks;
  const size_t bytes = count * size_of(type);
  if (comm.rank != 0) {
    const cudaError_t status = Group(comm, {{true, static_cast<char *>(const_cast<void *>(from)), bytes, 0}}, 1).run();
    if (status != cudaSuccess) return status;
    return Group(comm, {{false, static_cast<char *>(to), bytes, 0}}, 1).run();
  }
  std::vector<std::vector<char>> parts(n, std::vector<char>(bytes));
  std::vector<Call> calls;
  for (int r = 1; r < n; ++r) calls.push_back({false, parts[r].data(), bytes, r});
  const cudaError_t status = Group(comm, calls, 1).run();
  if (status != cudaSuccess) return status;
  for (size_t i = 0; i < count; ++i) {
    double value = load(type, from, i);
    for (int r = 1; r < n; ++r) value = combine(op, value, load(type, parts[r].data(), i));
    store(type, to, i, op == ncclAvg ? value / n : value);
  }
  calls.clear();
  for (int r = 1; r < n; ++r) calls.push_back({true, static_cast<char *>(to), bytes, r});
  return Group(comm, calls, 1).run();
}

}  // namespace lc_shim

inline const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const names[] = {
      "no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument",
      "invalid usage", "remote process exited or there was a network error"};
  return names[result];
}
inline const char *ncclGetLastError(ncclComm_t comm) { return comm ? comm->room->shared().message : ""; }

inline ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static std::atomic<int> count{0};
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "latecomer-shim-%d-%d-%lld", static_cast<int>(getpid()), count++,
           static_cast<long long>(lc_shim::now_ns()));
  return ncclSuccess;
}
inline ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
  if (rank < 0 || rank >= ranks) return ncclInvalidArgument;
  auto room = lc_shim::Room::open(id.internal, ranks);
  room->lock();
  if (++room->shared().joined == ranks) unlink(room->path.c_str());
  for (int r = 0; r < ranks; ++r) room->wake(r);
  const int64_t until = lc_shim::now_ns() + static_cast<int64_t>(lc_shim::timeout_s() * 1e9);
  bool in_time = true;
  while (room->shared().joined < ranks && in_time && !room->shared().failed) in_time = room->wait(rank, until);
  const int joined = room->shared().joined;
  if (joined < ranks) {
    unlink(room->path.c_str());
    room->fail("only " + std::to_string(joined) + " of " + std::to_string(ranks) +
               " ranks have called ncclCommInitRank");
  }
  room->unlock();
  if (joined < ranks) return ncclRemoteError;
  *comm = new ncclComm{room, rank, lc_shim::device};
  return ncclSuccess;
}
inline ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
inline ncclResult_t ncclCommAbort(ncclComm_t comm) { return ncclCommDestroy(comm); }
inline ncclResult_t ncclCommCount(ncclComm_t comm, int *count) {
  *count = comm->room->ranks;
  return ncclSuccess;
}
inline ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
inline ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *device) {
  *device = comm->device;
  return ncclSuccess;
}
inline ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  comm->room->lock();
  *error = comm->room->shared().failed ? ncclRemoteError : ncclSuccess;
  comm->room->unlock();
  return ncclSuccess;
}

inline ncclResult_t ncclGroupStart() {
  ++lc_shim::pending.depth;
  return ncclSuccess;
}
inline ncclResult_t ncclGroupEnd() {
  lc_shim::Pending &pending = lc_shim::pending;
  if (pending.depth == 0) return ncclInvalidUsage;
  if (--pending.depth > 0) return ncclSuccess;
  for (lc_shim::Pending::Item &item : pending.items)
    lc_shim::stream_of(item.stream).add([comm = item.comm, calls = item.calls] {
      return lc_shim::Group(*comm, calls, 0).run();
    });
  pending.items.clear();
  return ncclSuccess;
}
inline ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream) {
  ncclGroupStart();
  char *const address = static_cast<char *>(const_cast<void *>(from));
  const lc_shim::Call call = {true, address, count * lc_shim::size_of(type), peer};
  const ncclResult_t result = lc_shim::add_call(call, comm, stream);
  ncclGroupEnd();
  return result;
}
inline ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream) {
  ncclGroupStart();
  const lc_shim::Call call = {false, static_cast<char *>(to), count * lc_shim::size_of(type), peer};
  const ncclResult_t result = lc_shim::add_call(call, comm, stream);
  ncclGroupEnd();
  return result;
}
inline ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                  ncclComm_t comm, cudaStream_t stream) {
  lc_shim::stream_of(stream).add([=] { return lc_shim::all_reduce(*comm, from, to, count, type, op); });
  return ncclSuccess;
}

#endif

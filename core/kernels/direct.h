// Allreduce by one kernel on each device, whose blocks meet the peers' blocks of the same number through flags in
// device memory: the text for the device's kernel, the host devices' kernel and, with a thread for every thread of a
// block, the tests (which run it under the thread sanitizer).
//
// This text includes nothing (values.h says why); it comes after elements.h. `Exec` is how a thread knows its place in
// the grid, waits for its block, and reaches memory that others write meanwhile; kernels/grid.cuh has the device's.
//
// Which block moves which bytes depends on the part and the grid alone, never on the rank, and all grids are the same:
// what block b of one rank reads of a peer was written by block b of that peer, so that no block waits for any but its
// namesakes. All blocks of a grid must be on the device at once; the launcher sees to that.
//
// A meeting: every rank raises its own flag at each peer, in the peer's memory, and waits for the peers' flags in its
// own. Flags only ever grow, by one a meeting: a rank that is ahead has raised more than is waited for, which is as
// good, so that nothing has to be set back and two sets of flags in turn are not needed either.
#pragma once

namespace linkgauge {
namespace direct {

using values::i64;
using values::u32;
using values::u64;

constexpr int kMostRanks = 16;
constexpr u64 kUnit = 16;   // bytes: what parts consist of, but for the last one's end
constexpr int kBatch = 4;   // peers whose operands a thread has under way together, one word of each
constexpr int kUnroll = 4;  // words that it has under way while it copies

// What is done between the meetings.
constexpr u32 kOneShot = 0;      // every rank reduces everything
constexpr u32 kTwoShotPull = 1;  // every rank reduces its part, then copies the other parts from those who did
constexpr u32 kTwoShotPush = 2;  // every rank reduces its part and writes it to all
constexpr u64 kMeetings = 3;     // of one operation, at most

// A rank's words of flags: whether it has given up, then one flag for each block and peer; those of a block side by
// side.
constexpr u64 kGivenUp = 0;
constexpr u64 kFirstFlag = 32;
LG_VALUES_FN u64 flag_of(u64 block, int rank) { return kFirstFlag + block * kMostRanks + static_cast<u64>(rank); }
LG_VALUES_FN u64 flag_words(u64 blocks) { return kFirstFlag + blocks * kMostRanks; }

// The bytes that a rank reduces in two_shot: as even as whole units allow, so that wide loads fit each part's begin.
struct Part {
  u64 offset;
  u64 bytes;
};
LG_VALUES_FN Part part_of(u64 bytes, int ranks, int rank) {
  const u64 units = bytes / kUnit;
  const u64 begin = units * static_cast<u64>(rank) / static_cast<u64>(ranks) * kUnit;
  const u64 end = units * (static_cast<u64>(rank) + 1) / static_cast<u64>(ranks) * kUnit;
  Part part = {begin, (rank == ranks - 1 ? bytes : end) - begin};
  return part;
}

struct Job {
  void* const* lists;  // in memory that the kernel reads: all ranks' sources, then their targets, then their flags
  int ranks;
  int rank;
  u64 elements;
  u32 datatype;
  u32 op;
  u32 mode;
  u64 epoch;     // the number of the operation, from 1, the same on all ranks
  u64 patience;  // in the Exec's ticks: how long a flag is waited for
  u64* failure;  // two words in the host's memory: what was not reached; and, from the host, that all are to leave
};

// What a failure word says: which operation, which of its meetings, whom block `block` waited for in vain.
struct Failure {
  u64 epoch;
  u64 meeting;
  int peer;
  u64 block;
};
LG_VALUES_FN u64 failure_word(const Failure& failure) {
  return failure.epoch << 24 | failure.meeting << 20 | static_cast<u64>(failure.peer) << 12 | failure.block;
}
LG_VALUES_FN Failure failure_of(u64 word) {
  Failure failure = {word >> 24, (word >> 20) & 0xf, static_cast<int>((word >> 12) & 0xff), word & 0xfff};
  return failure;
}

// The ranks' places, where all threads of a block find them.
struct Places {
  const unsigned char* sources[kMostRanks];
  unsigned char* targets[kMostRanks];
};

template <typename Exec>
LG_VALUES_FN void learn_places(Exec& exec, const Job& job, Places& places) {
  LG_NO_UNROLL
  for (int rank = static_cast<int>(exec.thread()); rank < job.ranks; rank += static_cast<int>(exec.threads())) {
    places.sources[rank] = static_cast<const unsigned char*>(job.lists[rank]);
    places.targets[rank] = static_cast<unsigned char*>(job.lists[job.ranks + rank]);
  }
}

template <typename Exec>
LG_VALUES_FN bool wait_for_flag(Exec& exec, const Job& job, const u64* flag, u64 value, const u64* given_up) {
  constexpr u64 kLooksPerGlance = 64;  // at the clock, which costs as much as a look
  i64 begin = 0;
  for (u64 look = 1;; ++look) {
    if (exec.load_acquire(flag) >= value) return true;
    if (look % kLooksPerGlance != 0) continue;
    exec.pause();
    const i64 now = static_cast<i64>(exec.ticks());
    if (begin == 0) begin = now;
    // Another block's failure ends this one's wait, as the host's word does that another rank has failed: a kernel that
    // is lost gives its device back soon.
    if (exec.load_acquire(given_up) != 0 || exec.load_acquire(job.failure + 1) != 0) return false;
    if (now - begin > static_cast<i64>(job.patience) || look >= exec.most_looks()) return false;
  }
}

// The meeting number `meeting` (1 to kMeetings) of the operation, for one block. What any thread of a namesake block
// wrote or read before it has happened for every thread here after it. False: somebody did not come, and this block is
// to leave.
template <typename Exec>
LG_VALUES_FN bool meet(Exec& exec, const Job& job, u64 meeting) {
  const u64 value = (job.epoch - 1) * kMeetings + meeting;
  u64* const* flags = reinterpret_cast<u64* const*>(job.lists) + 2 * static_cast<u64>(job.ranks);
  u64* const own = flags[job.rank];
  exec.sync();  // the accesses of all threads of the block come before the flag of one of them
  LG_NO_UNROLL
  for (int peer = static_cast<int>(exec.thread()); peer < job.ranks; peer += static_cast<int>(exec.threads())) {
    if (peer != job.rank) exec.store_release(flags[peer] + flag_of(exec.block(), job.rank), value);
  }
  LG_NO_UNROLL
  for (int peer = static_cast<int>(exec.thread()); peer < job.ranks; peer += static_cast<int>(exec.threads())) {
    if (peer == job.rank) continue;
    if (wait_for_flag(exec, job, own + flag_of(exec.block(), peer), value, own + kGivenUp)) continue;
    if (exec.load_acquire(own + kGivenUp) == 0) {
      const Failure failure = {job.epoch, meeting, peer, exec.block()};
      exec.store_release(own + kGivenUp, 1);
      exec.store_release(job.failure, failure_word(failure));
    }
    exec.fail();
  }
  exec.sync();
  return !exec.failed();
}

// --- one block's share of a part ---------------------------------------------------------------------------------

// Reduces word `i` of what begins at `offset`, and writes it to `writes` targets, the own one first. Operands are taken
// in the order of ranks, so that every rank would reckon the same result. The loads of a batch are all under way before
// the first is used: a link's latency is paid once.
template <u32 kDatatype, typename Word, int kPeers>
LG_VALUES_FN void reduce_word(const Places& places, int ranks, int rank, int writes, u64 offset, u64 i, u32 op) {
  using E = elements::Element<kDatatype>;
  // A word may be a single element.
  constexpr int kEach =
      static_cast<int>(sizeof(Word) / sizeof(typename E::Stored));  // NOLINT(bugprone-sizeof-expression)
  union Held {
    Word word;
    typename E::Stored values[kEach];
  };
  typename E::Wide sum[kEach] = {};
  LG_NO_UNROLL
  for (int peer = 0; peer < ranks; peer += kPeers) {
    Held held[kPeers] = {};
    LG_UNROLL
    for (int p = 0; p < kPeers; ++p) {
      if (peer + p < ranks) held[p].word = reinterpret_cast<const Word*>(places.sources[peer + p] + offset)[i];
    }
    LG_UNROLL
    for (int p = 0; p < kPeers; ++p) {
      if (peer + p >= ranks) continue;
      typename E::Wide wide[kEach];
      LG_UNROLL
      for (int e = 0; e < kEach; ++e) wide[e] = E::widen(held[p].values[e]);
      if (peer + p == 0) {
        LG_UNROLL
        for (int e = 0; e < kEach; ++e) sum[e] = wide[e];
      } else {
        elements::combine(sum, wide, op);
      }
    }
  }
  elements::finish(sum, op, ranks);
  Held result = {};
  LG_UNROLL
  for (int e = 0; e < kEach; ++e) result.values[e] = E::narrow(sum[e]);
  LG_NO_UNROLL
  for (int k = 0; k < writes; ++k) {
    const int to = rank + k < ranks ? rank + k : rank + k - ranks;  // not all to the same rank at once
    reinterpret_cast<Word*>(places.targets[to] + offset)[i] = result.word;
  }
}

// A tile is one unit for each thread; block b has the tiles b, b + blocks, ... What is beyond the whole units is block
// 0's, element by element.
template <u32 kDatatype, typename Exec>
LG_VALUES_FN void reduce_part(const Exec& exec, const Places& places, int ranks, int rank, const Part& part, int writes,
                              u32 op) {
  using Word = typename elements::WordOf<kDatatype>::Type;
  using Stored = typename elements::Element<kDatatype>::Stored;
  constexpr u64 kWords = kUnit / sizeof(Word);  // in a unit
  const u64 threads = exec.threads();
  const u64 units = part.bytes / kUnit;
  LG_NO_UNROLL
  for (u64 start = exec.block() * threads; start < units; start += exec.blocks() * threads) {
    const u64 end = (start + threads < units ? start + threads : units) * kWords;
    LG_NO_UNROLL
    for (u64 i = start * kWords + exec.thread(); i < end; i += threads)
      reduce_word<kDatatype, Word, kBatch>(places, ranks, rank, writes, part.offset, i, op);
  }
  if (exec.block() != 0) return;
  LG_NO_UNROLL
  for (u64 i = exec.thread(); i < (part.bytes - units * kUnit) / sizeof(Stored); i += threads)
    reduce_word<kDatatype, Stored, 1>(places, ranks, rank, writes, part.offset + units * kUnit, i, op);
}

// The same tiles of every other rank's part, from its target into the own one. Each rank begins with its next.
template <typename Exec>
LG_VALUES_FN void gather_parts(const Exec& exec, const Places& places, const Job& job, u64 bytes) {
  using Word = elements::Word16;
  const u64 stride = exec.blocks() * exec.threads();
  const u64 first = exec.block() * exec.threads() + exec.thread();
  LG_NO_UNROLL
  for (int k = 1; k < job.ranks; ++k) {
    const int peer = job.rank + k < job.ranks ? job.rank + k : job.rank + k - job.ranks;
    const Part part = part_of(bytes, job.ranks, peer);
    const u64 units = part.bytes / kUnit;
    const unsigned char* from = places.targets[peer] + part.offset;
    unsigned char* to = places.targets[job.rank] + part.offset;
    const Word* source = reinterpret_cast<const Word*>(from);
    Word* target = reinterpret_cast<Word*>(to);
    u64 i = first;
    LG_NO_UNROLL
    for (; i + (kUnroll - 1) * stride < units; i += kUnroll * stride) {
      Word held[kUnroll];
      LG_UNROLL
      for (u64 u = 0; u < kUnroll; ++u) held[u] = source[i + u * stride];
      LG_UNROLL
      for (u64 u = 0; u < kUnroll; ++u) target[i + u * stride] = held[u];
    }
    LG_NO_UNROLL
    for (; i < units; i += stride) target[i] = source[i];
    if (exec.block() != 0) continue;
    LG_NO_UNROLL
    for (u64 at = units * kUnit + exec.thread(); at < part.bytes; at += exec.threads()) to[at] = from[at];
  }
}

// The whole operation, for one block. `reducer` runs reduce_part for the job's datatype (elements::with_datatype),
// once.
//
// The last meeting: a rank's source is free to be written anew when every peer has read it, and its target complete
// when every peer has written it. In two_shot a target may be the source: a part is read of every source by the rank
// that reduces it, by the same thread that then writes it, and pulled only once all have reduced.
template <typename Exec, typename Reducer>
LG_VALUES_FN void allreduce(Exec& exec, const Job& job, Places& places, Reducer& reducer) {
  const u64 bytes = job.elements * values::element_bytes(job.datatype);
  learn_places(exec, job, places);
  if (!meet(exec, job, 1)) return;
  const Part whole = {0, bytes};
  reducer.part = job.mode == kOneShot ? whole : part_of(bytes, job.ranks, job.rank);
  reducer.writes = job.mode == kTwoShotPush ? job.ranks : 1;
  elements::with_datatype(job.datatype, reducer);
  if (job.mode == kTwoShotPull) {
    if (!meet(exec, job, 2)) return;
    gather_parts(exec, places, job, bytes);
  }
  (void)meet(exec, job, kMeetings);
}

}  // namespace direct
}  // namespace linkgauge

// Allreduce by pushing, without any meeting or fence: every rank writes its words, each with the operation's number
// beside it, into a scratch of every other rank, and waits for theirs in its own. The text for the device's kernels,
// the host devices' and, with a thread for every thread of a block, the tests (under the thread sanitizer).
//
// This text includes nothing (values.h says why); it comes after direct.h. `Exec` is direct.h's, and moves lines:
// kernels/allreduce_push.cu has the device's.
//
// A line is 16 bytes for 8 of data: two halves, each with 4 bytes of data and the low 32 bits of the operation's
// number. A half is written and read by one access of 8 bytes, so that its data are there when its number is: nothing
// else orders them. One trip over the link is the whole cost, for twice the bytes.
//
// A scratch has two slots, operations taking turns, with a place for each rank's lines. Two suffice: a rank begins
// operation e + 1 when its e is complete, which took every peer's lines of e; a peer sent those after it had ended
// e - 1, and so will not read the slot of e - 1 again, which e + 1 writes. In the same way nobody reads another's
// source, so that it may be the target.
//
// Every thread sends all its words before it waits for any. All blocks of a grid are on the device at once: a block
// that waits keeps no other from sending.
//
// A kernel that stays resident does one operation after the other, each once the host has written its number where the
// blocks look; the host writes the next number when it knows of the last one's end. Each block has a line of its own to
// look at: looks of several at one place in the host's memory were seen to come one after the other, each after more
// than a microsecond.
#pragma once

namespace linkgauge {
namespace push {

using values::i64;
using values::u32;
using values::u64;

constexpr u64 kDataBytes = 8;  // of a line
constexpr u64 kSlots = 2;
constexpr int kBatch = 4;            // peers whose lines a thread has under way together
constexpr u64 kMeetingNone = 0;      // what direct::Failure says in place of a meeting's number
constexpr u64 kLooksPerGlance = 64;  // at the clock and at the host's words, which cost more than a look at a line
constexpr u64 kLeave = ~u64{0};      // in place of an operation's number: a resident kernel ends
constexpr u64 kStartStride = 16;     // words: a block's look is at a line of 128 bytes of its own

struct alignas(16) Line {
  u64 halves[2];
};

// Words in the rank's own device memory.
constexpr u64 kGivenUp = 0;
constexpr u64 kBlocksEnded = 16;  // in a sector of its own
constexpr u64 kOwnWords = 32;

LG_VALUES_FN u64 lines_of(u64 bytes) { return (bytes + kDataBytes - 1) / kDataBytes; }
LG_VALUES_FN u64 scratch_bytes(u64 bytes, int ranks) {
  return kSlots * static_cast<u64>(ranks) * lines_of(bytes) * sizeof(Line);
}

// The kernel's one parameter: all that it must know is where a launch puts it, and nothing is fetched from memory.
struct Job {
  Line* scratches[direct::kMostRanks];  // by rank; unset beyond them
  Line* own;                            // this rank's
  const unsigned char* source;          // both aligned to kDataBytes
  unsigned char* target;
  u64 bytes;
  u64 epoch;     // the number of the (first) operation, from 1, the same on all ranks
  u64 patience;  // in the Exec's ticks: how long a line is waited for
  u64* words;    // kOwnWords of this rank
  u64* failure;  // two words in the host's memory, as direct::Job has them
  u64* done;     // in the host's memory: becomes the operation's number once the whole target is written; or null
  // In the host's memory, a block's word kStartStride after the last's: the last operation that may begin, or kLeave.
  // Null: the kernel is of one operation.
  const u64* start;
  int ranks;
  int rank;
  u32 op;
};

template <u32 kDatatype>
union Held {
  using Stored = typename elements::Element<kDatatype>::Stored;
  static constexpr int kEach = static_cast<int>(kDataBytes / sizeof(Stored));  // NOLINT(bugprone-sizeof-expression)
  u64 word;
  Stored values[kDataBytes / sizeof(Stored)];  // NOLINT(bugprone-sizeof-expression)
};

// Word `i` of what the rank gives; beyond its end are zeros.
template <u32 kDatatype>
LG_VALUES_FN u64 load_word(const Job& job, u64 i) {
  Held<kDatatype> held = {};
  const u64 at = i * kDataBytes;
  if (at + kDataBytes <= job.bytes) {
    held.word = *reinterpret_cast<const u64*>(job.source + at);
  } else {
    using Stored = typename Held<kDatatype>::Stored;
    const u64 count = (job.bytes - at) / sizeof(Stored);
    LG_UNROLL
    for (int e = 0; e < Held<kDatatype>::kEach; ++e) {
      if (static_cast<u64>(e) < count) held.values[e] = reinterpret_cast<const Stored*>(job.source + at)[e];
    }
  }
  return held.word;
}

template <u32 kDatatype>
LG_VALUES_FN void store_word(const Job& job, u64 i, const Held<kDatatype>& held) {
  const u64 at = i * kDataBytes;
  if (at + kDataBytes <= job.bytes) {
    *reinterpret_cast<u64*>(job.target + at) = held.word;
  } else {
    using Stored = typename Held<kDatatype>::Stored;
    const u64 count = (job.bytes - at) / sizeof(Stored);
    LG_UNROLL
    for (int e = 0; e < Held<kDatatype>::kEach; ++e) {
      if (static_cast<u64>(e) < count) reinterpret_cast<Stored*>(job.target + at)[e] = held.values[e];
    }
  }
}

LG_VALUES_FN u64 place_of(const Job& job, u64 epoch, int rank) {
  return ((epoch % kSlots) * static_cast<u64>(job.ranks) + static_cast<u64>(rank)) * lines_of(job.bytes);
}

// Each rank begins with its next, so that not all write to one rank at once.
template <u32 kDatatype, typename Exec>
LG_VALUES_FN void send(const Exec& exec, const Job& job, u64 epoch, u64 first, u64 stride) {
  const u64 words = lines_of(job.bytes);
  const u64 place = place_of(job, epoch, job.rank);
  const u64 number = epoch << 32;
  LG_NO_UNROLL
  for (u64 i = first; i < words; i += stride) {
    const u64 word = load_word<kDatatype>(job, i);
    const Line line = {{number | (word & 0xffffffffULL), number | word >> 32}};
    LG_NO_UNROLL
    for (int k = 1; k < job.ranks; ++k) {
      const int to = job.rank + k < job.ranks ? job.rank + k : job.rank + k - job.ranks;
      exec.store_line(job.scratches[to] + place + i, line);
    }
  }
}

// The first rank of a batch whose line is missing; where none is any more, some rank.
template <typename Exec>
LG_VALUES_FN int missing_of(const Exec& exec, const Job& job, u64 number, const Line* lines, u64 each, int begin) {
  int missing = begin;
  LG_NO_UNROLL
  for (int peer = begin; peer < begin + kBatch && peer < job.ranks; ++peer) {
    if (peer == job.rank) continue;
    missing = peer;
    const Line line = exec.load_line(lines + static_cast<u64>(peer) * each);
    if (line.halves[0] >> 32 != number || line.halves[1] >> 32 != number) break;
  }
  return missing;
}

// Waits for the lines of ranks `begin` and following, all of whose loads are under way together. `lines` is where the
// line of rank 0 is, and the next rank's `each` further. False: somebody did not come.
template <typename Exec>
LG_VALUES_FN bool receive(Exec& exec, const Job& job, u64 epoch, const Line* lines, u64 each, int begin,
                          u64 (&words)[kBatch]) {
  const u64 number = epoch & 0xffffffffULL;
  i64 since = 0;
  for (u64 look = 1;; ++look) {
    Line line[kBatch] = {};
    LG_UNROLL
    for (int p = 0; p < kBatch; ++p) {
      const int peer = begin + p;
      if (peer < job.ranks && peer != job.rank) line[p] = exec.load_line(lines + static_cast<u64>(peer) * each);
    }
    bool all = true;
    LG_UNROLL
    for (int p = 0; p < kBatch; ++p) {
      const int peer = begin + p;
      if (peer >= job.ranks || peer == job.rank) continue;
      all = all && line[p].halves[0] >> 32 == number && line[p].halves[1] >> 32 == number;
      words[p] = (line[p].halves[0] & 0xffffffffULL) | line[p].halves[1] << 32;
    }
    if (all) return true;
    if (look % kLooksPerGlance != 0) continue;
    exec.pause();
    const i64 now = static_cast<i64>(exec.ticks());
    if (since == 0) since = now;
    // Another thread's failure ends this one's wait, as the host's word does that another rank has failed.
    if (exec.load_acquire(job.words + kGivenUp) != 0) return false;
    if (exec.load_acquire(job.failure + 1) == 0 && now - since <= static_cast<i64>(job.patience) &&
        look < exec.most_looks())
      continue;
    const int missing = missing_of(exec, job, number, lines, each, begin);
    const direct::Failure failure = {epoch, kMeetingNone, missing, exec.block()};
    exec.store_release(job.words + kGivenUp, 1);
    exec.store_release(job.failure, direct::failure_word(failure));
    return false;
  }
}

// Reduces word `i` in the order of ranks, so that every rank reckons the same result, bit by bit.
template <u32 kDatatype, typename Exec>
LG_VALUES_FN bool reduce_word(Exec& exec, const Job& job, u64 epoch, u64 place, u64 each, u64 i) {
  using E = elements::Element<kDatatype>;
  constexpr int kEach = Held<kDatatype>::kEach;
  const u64 mine = load_word<kDatatype>(job, i);
  typename E::Wide sum[kEach] = {};
  LG_NO_UNROLL
  for (int begin = 0; begin < job.ranks; begin += kBatch) {
    u64 words[kBatch] = {};
    if (!receive(exec, job, epoch, job.own + place + i, each, begin, words)) return false;
    LG_UNROLL
    for (int p = 0; p < kBatch; ++p) {
      if (begin + p >= job.ranks) continue;
      Held<kDatatype> held = {};
      held.word = begin + p == job.rank ? mine : words[p];
      typename E::Wide wide[kEach];
      LG_UNROLL
      for (int e = 0; e < kEach; ++e) wide[e] = E::widen(held.values[e]);
      if (begin + p == 0) {
        LG_UNROLL
        for (int e = 0; e < kEach; ++e) sum[e] = wide[e];
      } else {
        elements::combine(sum, wide, job.op);
      }
    }
  }
  elements::finish(sum, job.op, job.ranks);
  Held<kDatatype> result = {};
  LG_UNROLL
  for (int e = 0; e < kEach; ++e) result.values[e] = E::narrow(sum[e]);
  store_word<kDatatype>(job, i, result);
  return true;
}

// The last block tells the host. What any thread wrote is then to be seen by whoever has seen that.
template <typename Exec>
LG_VALUES_FN void tell_host(Exec& exec, const Job& job, u64 epoch) {
  if (job.done == nullptr) return;
  exec.sync();
  if (exec.thread() != 0) return;
  if (exec.blocks() > 1) {
    if (exec.count(job.words + kBlocksEnded) + 1 != exec.blocks()) return;
    job.words[kBlocksEnded] = 0;
  }
  exec.store_release(job.done, epoch);
}

// One operation, for one thread.
template <u32 kDatatype, typename Exec>
LG_VALUES_FN void operate(Exec& exec, const Job& job, u64 epoch) {
  const u64 words = lines_of(job.bytes);
  const u64 first = exec.block() * exec.threads() + exec.thread();
  const u64 stride = exec.blocks() * exec.threads();
  send<kDatatype>(exec, job, epoch, first, stride);
  const u64 place = place_of(job, epoch, 0);
  LG_NO_UNROLL
  for (u64 i = first; i < words; i += stride) {
    if (!reduce_word<kDatatype>(exec, job, epoch, place, words, i)) break;
  }
  tell_host(exec, job, epoch);
}

// Of a resident kernel, for one thread: waits until the operation may begin. False: the kernel is to end. What the host
// knew when it wrote the number is known to every thread of the block then. There is no bound to this wait: whoever
// would end it is this process's host, and a kernel does not outlive its process.
template <typename Exec>
LG_VALUES_FN bool may_begin(Exec& exec, const Job& job, u64 epoch) {
  bool leave = false;
  if (exec.thread() == 0) {
    const u64* start = job.start + exec.block() * kStartStride;
    u64 last = exec.load_acquire(start);
    for (u64 look = 1; last < epoch; ++look) {
      if (look % kLooksPerGlance == 0) exec.pause();
      last = exec.load_acquire(start);
    }
    leave = last == kLeave;
  }
  return !exec.any(leave);
}

// The kernel's operations, one or as many as the host lets begin: one(number) does each.
template <typename Exec, typename One>
LG_VALUES_FN void each_operation(Exec& exec, const Job& job, const One& one) {
  u64 epoch = job.epoch;
  do {
    if (job.start != nullptr && !may_begin(exec, job, epoch)) return;
    one(epoch);
    ++epoch;
  } while (job.start != nullptr);
}

// The whole kernel, for one thread.
template <u32 kDatatype, typename Exec>
LG_VALUES_FN void allreduce(Exec& exec, const Job& job) {
  each_operation(exec, job, [&](u64 epoch) { operate<kDatatype>(exec, job, epoch); });
}

}  // namespace push
}  // namespace linkgauge

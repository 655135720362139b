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
#pragma once

namespace linkgauge {
namespace push {

using values::i64;
using values::u32;
using values::u64;

constexpr u64 kDataBytes = 8;  // of a line
constexpr u64 kSlots = 2;
constexpr int kBatch = 4;        // peers whose lines a thread has under way together
constexpr u64 kMeetingNone = 0;  // what direct::Failure says in place of a meeting's number

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
  u64 epoch;     // the number of the operation, from 1, the same on all ranks
  u64 patience;  // in the Exec's ticks: how long a line is waited for
  u64* words;    // kOwnWords of this rank
  u64* failure;  // two words in the host's memory, as direct::Job has them
  u64* done;     // in the host's memory: becomes `epoch` once the whole target is written; or null
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

LG_VALUES_FN u64 place_of(const Job& job, int rank) {
  return ((job.epoch % kSlots) * static_cast<u64>(job.ranks) + static_cast<u64>(rank)) * lines_of(job.bytes);
}

// Each rank begins with its next, so that not all write to one rank at once.
template <u32 kDatatype, typename Exec>
LG_VALUES_FN void send(const Exec& exec, const Job& job, u64 first, u64 stride) {
  const u64 words = lines_of(job.bytes);
  const u64 place = place_of(job, job.rank);
  const u64 number = job.epoch << 32;
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
LG_VALUES_FN int missing_of(const Exec& exec, const Job& job, const Line* lines, u64 each, int begin) {
  int missing = begin;
  LG_NO_UNROLL
  for (int peer = begin; peer < begin + kBatch && peer < job.ranks; ++peer) {
    if (peer == job.rank) continue;
    missing = peer;
    const Line line = exec.load_line(lines + static_cast<u64>(peer) * each);
    if (line.halves[0] >> 32 != (job.epoch & 0xffffffffULL) || line.halves[1] >> 32 != (job.epoch & 0xffffffffULL))
      break;
  }
  return missing;
}

// Waits for the lines of ranks `begin` and following, all of whose loads are under way together. `lines` is where the
// line of rank 0 is, and the next rank's `each` further. False: somebody did not come.
template <typename Exec>
LG_VALUES_FN bool receive(Exec& exec, const Job& job, const Line* lines, u64 each, int begin, u64 (&words)[kBatch]) {
  constexpr u64 kLooksPerGlance = 64;  // at the clock and at the host's word, which cost more than a look
  const u64 number = job.epoch & 0xffffffffULL;
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
    const direct::Failure failure = {job.epoch, kMeetingNone, missing_of(exec, job, lines, each, begin), exec.block()};
    exec.store_release(job.words + kGivenUp, 1);
    exec.store_release(job.failure, direct::failure_word(failure));
    return false;
  }
}

// Reduces word `i` in the order of ranks, so that every rank reckons the same result, bit by bit.
template <u32 kDatatype, typename Exec>
LG_VALUES_FN bool reduce_word(Exec& exec, const Job& job, u64 place, u64 each, u64 i) {
  using E = elements::Element<kDatatype>;
  constexpr int kEach = Held<kDatatype>::kEach;
  const u64 mine = load_word<kDatatype>(job, i);
  typename E::Wide sum[kEach] = {};
  LG_NO_UNROLL
  for (int begin = 0; begin < job.ranks; begin += kBatch) {
    u64 words[kBatch] = {};
    if (!receive(exec, job, job.own + place + i, each, begin, words)) return false;
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
LG_VALUES_FN void tell_host(Exec& exec, const Job& job) {
  if (job.done == nullptr) return;
  exec.sync();
  if (exec.thread() != 0) return;
  if (exec.blocks() > 1) {
    if (exec.count(job.words + kBlocksEnded) + 1 != exec.blocks()) return;
    job.words[kBlocksEnded] = 0;
  }
  exec.store_release(job.done, job.epoch);
}

// The whole operation, for one thread.
template <u32 kDatatype, typename Exec>
LG_VALUES_FN void allreduce(Exec& exec, const Job& job) {
  const u64 words = lines_of(job.bytes);
  const u64 first = exec.block() * exec.threads() + exec.thread();
  const u64 stride = exec.blocks() * exec.threads();
  send<kDatatype>(exec, job, first, stride);
  const u64 place = place_of(job, 0);
  LG_NO_UNROLL
  for (u64 i = first; i < words; i += stride) {
    if (!reduce_word<kDatatype>(exec, job, place, words, i)) break;
  }
  tell_host(exec, job);
}

}  // namespace push
}  // namespace linkgauge

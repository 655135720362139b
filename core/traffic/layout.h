// Where the data of each pattern lie: buffer sizes, what each rank sends, and what must have arrived where.
// The formulas are those of docs/definitions.md, Sizes and goodput. Pure functions of the case, the ranks and the rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/case_spec.h"
#include "traffic/schedule.h"

namespace linkgauge {

// Bytes offset..offset+bytes-1 of a buffer: bytes stream_offset.. of the stream of `rank`, or, where `reduced`, of the
// reduction over all ranks (kernels/values.h).
struct Piece {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  int rank = 0;
  std::uint64_t stream_offset = 0;
  bool reduced = false;
};

struct Layout {
  std::size_t source_bytes = 0;  // 0: this rank sends nothing
  std::size_t target_bytes = 0;  // 0: this rank receives nothing
  bool one_buffer = false;       // in place: the target buffer is the source buffer
  bool typed = false;            // elements that are reduced, not raw bytes
  std::vector<Piece> sent;       // in the source buffer
  std::vector<Piece> received;   // in the target buffer
};

// Whether a rank reads what has arrived within an iteration and tells nobody: reduce and reduce_scatter. (Allreduce's
// result tells that the operands were read.)
bool reads_what_arrives(Pattern pattern);
// Bytes of one block: size_bytes / ranks where the pattern cuts blocks, else size_bytes.
std::size_t block_bytes(const Traffic& traffic, int ranks);

// Why the pattern cannot have this size, number of ranks, root, datatype or op, in one sentence; "" if it can.
std::string why_not_laid_out(const CaseSpec& spec, int ranks);

// Where a library's collective differs from the pattern over channels.
struct LayoutRules {
  bool own_block = false;         // alltoall moves a rank's own block too, as MPI_Alltoall does
  bool reduced_to_front = false;  // in place reduce_scatter leaves its block at the buffer's front, as MPI does
  bool halo_field = false;        // a halo's messages lie in a field of cells (traffic/halo.h)
  bool no_bytes = false;          // a barrier has no buffers, as MPI_Barrier
};

// Of the patterns between ranks. The case passed why_not_laid_out.
Layout layout_of(const Traffic& traffic, int ranks, int rank, const LayoutRules& rules = {});

// Where a rank sends from (`sends`) or receives into. Where data comes back, the first of a pair has all its buffers in
// source_memory and the second in target_memory, as OSU's "H D" has it.
const End& end_of(const CaseSpec& spec, int ranks, int rank, bool sends);

// Bytes of each buffer that messages of the rank begin or end in, over channels; none where it cannot be laid out.
// Of an application not those of its collectives.
std::vector<std::size_t> lent_sizes(const CaseSpec& spec, int ranks, int rank);

}  // namespace linkgauge

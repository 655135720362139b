#include "traffic/layout.h"

#include <algorithm>

#include "base/errors.h"
#include "base/patterns.h"
#include "kernels/values.h"
#include "traffic/distribution.h"
#include "traffic/program.h"

namespace linkgauge {

bool reads_what_arrives(Pattern pattern) {
  return moves_as(pattern) == Pattern::kReduce || moves_as(pattern) == Pattern::kReduceScatter;
}

std::size_t block_bytes(const Traffic& traffic, int ranks) {
  const std::size_t size = traffic.bytes();
  return traits_of(traffic.pattern).cuts_blocks ? size / static_cast<std::size_t>(ranks) : size;
}

namespace {

std::string why_not_cut(const Traffic& traffic, int ranks) {
  const std::int64_t element = static_cast<std::int64_t>(size_of(traffic.datatype));
  const std::int64_t blocks = traits_of(traffic.pattern).cuts_blocks ? ranks : 1;
  const std::int64_t block = traffic.size_bytes / (blocks * element) * element;
  const std::string size = std::to_string(traffic.size_bytes) + " bytes";
  const std::string unit = std::string(to_string(traffic.datatype));
  if (block == 0) {
    return "a block of 0: " + size + " are less than one " + unit + " for each of " + std::to_string(blocks) +
           " blocks; " + std::to_string(blocks * element) + " bytes are the least";
  }
  if (block * blocks != traffic.size_bytes) {
    return size + " are not " + std::to_string(blocks) + (blocks == 1 ? " block" : " blocks") + " of whole " + unit +
           " elements; the nearest size below is " + std::to_string(block * blocks);
  }
  return "";
}

}  // namespace

std::string why_not_laid_out(const CaseSpec& spec, int ranks) {
  const Traffic& traffic = spec.traffic;
  const std::string pattern(to_string(traffic.pattern));
  const PatternTraits& traits = traits_of(traffic.pattern);
  if (traffic.pattern == Pattern::kApplication) return "an application's data lie where its program says";
  if (std::string reason = why_not_distributed(traffic.pattern, traffic.distribution, ranks); !reason.empty())
    return reason;
  if (traffic.size_bytes <= 0 && traffic.pattern != Pattern::kBarrier)
    return "a size of 0 moves nothing; 1 byte is the least";
  if (traits.kind == PatternKind::kDevice) return "";
  if (traffic.window < 1) return "a window of " + std::to_string(traffic.window) + "; 1 message is the least";
  if (ranks < 2 && !traits.one_pair) return pattern + " needs 2 ranks or more, the case has " + std::to_string(ranks);
  if (traits.one_pair && ranks > 2) {
    return pattern + " is between 2 ranks, the case has " + std::to_string(ranks);
  }
  if (traits.side_by_side && (ranks < 4 || ranks % 2 != 0)) {
    return pattern + " needs an even number of ranks, 4 or more: two pairs; the case has " + std::to_string(ranks);
  }
  if (traffic.root < 0 || traffic.root >= ranks) {
    return "root " + std::to_string(traffic.root) + " is no rank of the case; ranks are 0 to " +
           std::to_string(ranks - 1);
  }
  if (traffic.in_place) {
    if (!traits.in_place) return pattern + " has no in-place form; leave --in-place out";
    if (spec.places.source.kind != spec.places.target.kind)
      return "in place there is one buffer; give it one memory kind";
  }
  if (traits.cuts_blocks || traits.reduces) {
    if (std::string reason = why_not_cut(traffic, ranks); !reason.empty()) return reason;
  }
  if (traits.reduces &&
      !values::reduction_is_exact(static_cast<unsigned>(traffic.datatype), static_cast<unsigned>(traffic.op), ranks)) {
    return "avg of " + std::string(to_string(traffic.datatype)) + " over " + std::to_string(ranks) +
           " ranks rounds, so its result cannot be verified; take a power of two of ranks, or sum";
  }
  return "";
}

Layout layout_of(const Traffic& traffic, int ranks, int rank, const LayoutRules& rules) {
  const std::size_t size = traffic.bytes();
  const std::size_t block = block_bytes(traffic, ranks);
  const auto place = static_cast<std::size_t>(rank) * block;
  const std::size_t all = static_cast<std::size_t>(ranks) * block;
  const bool is_root = rank == traffic.root;
  Layout layout;
  layout.typed = traits_of(traffic.pattern).reduces;
  layout.one_buffer = traffic.in_place;

  const auto sends = [&](std::size_t bytes) {
    layout.source_bytes = bytes;
    layout.sent.push_back({0, bytes, rank, 0, false});
  };
  const auto receives = [&](std::size_t offset, std::size_t bytes, int from, std::uint64_t stream_offset) {
    layout.received.push_back({offset, bytes, from, stream_offset, layout.typed});
  };
  const auto receives_whole = [&](std::size_t bytes, int from, std::uint64_t stream_offset) {
    layout.target_bytes = bytes;
    receives(0, bytes, from, stream_offset);
  };
  const auto receives_from_all = [&](std::uint64_t stream_offset, bool with_own) {
    layout.target_bytes = all;
    for (int from = 0; from < ranks; ++from) {
      if (from == rank && !with_own) continue;
      receives(static_cast<std::size_t>(from) * block, block, from, stream_offset);
    }
  };

  switch (moves_as(traffic.pattern)) {
    case Pattern::kBidirectional:
      if (ranks == 1) {  // each way inside the device has buffers of its own
        sends(2 * size);
        receives_whole(2 * size, 0, 0);
        break;
      }
      [[fallthrough]];
    case Pattern::kPingpong:
      sends(size);
      receives_whole(size, ranks == 1 ? 0 : rank ^ 1, 0);
      break;
    case Pattern::kUnidirectional:
      if (rank % 2 == 0) sends(size);
      if (rank % 2 == 1 || ranks == 1) {
        receives_whole(size, rank / 2 * 2, 0);
      }
      break;
    case Pattern::kRingShift:
      sends(size);
      receives_whole(size, (rank + ranks - 1) % ranks, 0);
      break;
    case Pattern::kOneToAll:  // its own bytes for each peer
      if (is_root) {
        sends(all);
      } else {
        receives_whole(size, traffic.root, place);
      }
      break;
    case Pattern::kAllToOne:
      if (is_root) {
        receives_from_all(0, false);
      } else {
        sends(size);
      }
      break;
    case Pattern::kAlltoall:
      sends(all);
      receives_from_all(place, rules.own_block);
      break;
    case Pattern::kAllreduce:
      sends(size);
      receives_whole(size, rank, 0);
      break;
    case Pattern::kReduce:
      sends(size);
      if (is_root) {
        receives_whole(size, rank, 0);
      }
      break;
    case Pattern::kReduceScatter:
      sends(all);
      layout.target_bytes = traffic.in_place ? all : block;
      receives(traffic.in_place && !rules.reduced_to_front ? place : 0, block, rank, place);
      break;
    case Pattern::kBroadcast:
      if (is_root) sends(size);
      if (!is_root) {
        receives_whole(size, traffic.root, 0);
      }
      break;
    case Pattern::kAllgather:
      if (traffic.in_place) {
        layout.sent.push_back({place, block, rank, 0, false});
        layout.source_bytes = all;
      } else {
        sends(block);
      }
      receives_from_all(0, true);
      break;
    case Pattern::kGather:
      if (traffic.in_place && is_root) {
        layout.sent.push_back({place, block, rank, 0, false});
        layout.source_bytes = all;
      } else {
        sends(block);
      }
      if (is_root) receives_from_all(0, true);
      break;
    case Pattern::kScatter:
      if (is_root) sends(all);
      if (!is_root || !traffic.in_place) {
        receives_whole(block, traffic.root, place);
      }
      break;
    case Pattern::kAlltoallv: {
      const AlltoallvShare share = alltoallv_share(traffic, ranks, rank);
      if (share.source_bytes > 0) sends(share.source_bytes);
      layout.target_bytes = share.target_bytes;
      for (int from = 0; from < ranks; ++from) {
        const auto peer = static_cast<std::size_t>(from);
        if (share.received[peer] > 0)
          receives(share.received_at[peer], share.received[peer], from, share.leaves_from[peer]);
      }
      break;
    }
    case Pattern::kHalo: {
      if (rules.halo_field) {
        const HaloField field = halo_field(traffic, ranks, rank);
        sends(field.buffer_bytes);
        layout.target_bytes = field.buffer_bytes;
        for (const HaloRegionMessage& message : field.received) {
          if (message.peer < 0) continue;
          each_run(message, [&](std::size_t own_at, std::size_t peer_at, std::size_t bytes) {
            receives(own_at, bytes, message.peer, peer_at);
          });
        }
        break;
      }
      const HaloShare share = halo_share(traffic, ranks, rank);
      sends(share.buffer_bytes);
      layout.target_bytes = share.buffer_bytes;
      for (const HaloMessage& message : share.received) {
        if (message.peer >= 0) receives(message.own_at, message.bytes, message.peer, message.peer_at);
      }
      break;
    }
    case Pattern::kBarrier: {
      if (rules.no_bytes) break;
      const std::size_t token = traffic.bytes();
      sends(token);
      int stage = 0;
      for (int behind = 1; behind < ranks; behind *= 2, ++stage) {
        receives(static_cast<std::size_t>(stage) * token, token, (rank + ranks - behind) % ranks, 0);
      }
      layout.target_bytes = static_cast<std::size_t>(stage) * token;
      break;
    }
    default:
      throw CallerError(std::string(to_string(traffic.pattern)) + " is not a pattern between ranks");
  }
  // In place a rank has one buffer that serves as both.
  if (layout.source_bytes == 0 || layout.target_bytes == 0) layout.one_buffer = false;
  return layout;
}

const End& end_of(const CaseSpec& spec, int ranks, int rank, bool sends) {
  const bool source = ranks > 1 && traits_of(spec.traffic.pattern).comes_back ? rank % 2 == 0 : sends;
  return source ? spec.places.source : spec.places.target;
}

std::vector<std::size_t> lent_sizes(const CaseSpec& spec, int ranks, int rank) {
  if (spec.traffic.program) return {spec.traffic.program->source_bytes, spec.traffic.program->target_bytes};
  if (traits_of(spec.traffic.pattern).kind == PatternKind::kDevice || !why_not_laid_out(spec, ranks).empty()) return {};
  const Layout layout = layout_of(spec.traffic, ranks, rank);
  const std::size_t scratch_bytes = schedule_of(spec.traffic, ranks, rank).scratch_bytes;
  return {layout.one_buffer ? 0 : layout.source_bytes, layout.target_bytes, scratch_bytes};
}

}  // namespace linkgauge

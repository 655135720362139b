// What the ranks of a transport settle while they connect.
#pragma once

#include "group/agreement.h"
#include "transport/transport.h"

namespace linkgauge {

// Of a device's stream. A poll costs about half a microsecond; an abort may wait a millisecond.
inline constexpr int kPollsPerAbortCheck = 1024;

// Returns when all in the stream is over. Throws PeerError where a rank of the group has failed meanwhile.
void wait_for_stream(DeviceRuntime& runtime, StreamHandle stream, const Group& group);

// Collective: the first tag of MPI messages that an operation of these ranks may use, the next seven being its own as
// well. What an operation that failed has left under way is so never taken for the next one's.
int fresh_tags(const RankContext& context, const Progress& progress);

// Collective: runs `body` on this rank. Where memory or a possibility lacks on any, all throw Unsupported with its
// reason: none is left waiting for another in what follows.
template <typename Body>
void agreeing(Group& group, const Progress& progress, const Body& body) {
  agree_or_throw(group, what_lacks(body), progress);
}

// Collective: runs `body` on the first rank of each node, then on the others: what it makes, for seconds, they find.
// Throws as agreeing() does.
void one_of_a_node_first(const RankContext& context, const std::function<void()>& body);

// Collective over the case's job: by_turns over the ranks of all its parts, which share links too.
inline void by_turns(const RankContext& context, bool disturbed, const std::function<void()>& body) {
  const auto ranks = [&] { by_turns(*context.group, disturbed, body); };
  if (disturbed) {
    context.while_others_wait(ranks);
  } else {
    ranks();
  }
}

}  // namespace linkgauge

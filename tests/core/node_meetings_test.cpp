// Meetings of nodes, which are threads here.
#include "group/node_meetings.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "mail_link.h"
#include "processor_time.h"

namespace linkgauge {
namespace {

// Ranks of the launch that nodes' first ranks are: in no order.
std::vector<int> leaders_of(int nodes) {
  std::vector<int> leaders;
  for (int node = 0; node < nodes; ++node) leaders.push_back((node * 7 + 3) % 101);
  return leaders;
}

// Runs `body(node, link)` as each of `nodes` nodes; what went between them.
std::shared_ptr<Mail> on_nodes(int nodes, const std::function<void(int, NodeLink&)>& body) {
  const auto mail = std::make_shared<Mail>();
  std::vector<std::thread> threads;
  for (int node = 0; node < nodes; ++node) {
    threads.emplace_back([&, node] {
      MailLink link(mail, leaders_of(nodes)[static_cast<std::size_t>(node)]);
      body(node, link);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& [way, left] : mail->ways) EXPECT_TRUE(left.empty()) << "nobody has taken a message";
  return mail;
}

Bytes message_of(int node, std::size_t bytes) { return Bytes(bytes, static_cast<std::byte>(node + 1)); }

TEST(NodeMeetings, AllHearOfAllWhateverTheirNumber) {
  for (const int nodes : {1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 33}) {
    on_nodes(nodes, [nodes](int node, NodeLink& link) {
      NodeMeetings meetings(link, 5, leaders_of(nodes), node);
      for (const int least : {-1000, 1000}) {
        std::vector<std::int64_t> numbers = {least + node, least - node, (node * 5) % nodes};
        meetings.largest(numbers, {});
        EXPECT_EQ(numbers, (std::vector<std::int64_t>{least + nodes - 1, least, nodes == 5 ? 0 : nodes - 1})) << nodes;
      }
      // None, as many as come with the first rounds, one more, many, and ragged.
      for (const std::size_t bytes : {0, 248, 249, 5'000}) {
        for (const int more : {0, 1, 1'000}) {
          const auto size = [&](int of) { return bytes + static_cast<std::size_t>(of % 3 * more); };
          const std::vector<Bytes> all = meetings.all(message_of(node, size(node)), {});
          ASSERT_EQ(all.size(), static_cast<std::size_t>(nodes));
          for (int other = 0; other < nodes; ++other) {
            EXPECT_EQ(all[static_cast<std::size_t>(other)], message_of(other, size(other)));
          }
        }
      }
    });
  }
}

// What barriers, votes and deadlines cost: as many messages as the number of nodes has bits, none longer for more.
TEST(NodeMeetings, NumbersTakeAsManyBytesHoweverManyNodesThereAre) {
  for (const int nodes : {2, 5, 32}) {
    const auto mail = on_nodes(nodes, [nodes](int node, NodeLink& link) {
      NodeMeetings meetings(link, 0, leaders_of(nodes), node);
      std::vector<std::int64_t> numbers = {0, node};
      meetings.largest(numbers, {});
    });
    const auto rounds = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(nodes - 1)));
    EXPECT_EQ(mail->sent, std::vector<std::size_t>(static_cast<std::size_t>(nodes) * rounds, 16));
  }
}

TEST(NodeMeetings, TwoNodesSwapValuesWhileOthersMeetNobody) {
  on_nodes(5, [](int node, NodeLink& link) {
    NodeMeetings meetings(link, 9, leaders_of(5), node);
    for (int round = 0; round < 50 && (node == 1 || node == 4); ++round) {
      EXPECT_EQ(meetings.swapped(100 * round + node, 5 - node), 100 * round + 5 - node);
    }
  });
}

// A rank whose progress fails is heard of by all others, which need its later rounds of the meeting that it left.
TEST(NodeMeetings, WhatProgressThrowsLeavesNoOtherNodeBehind) {
  for (int nodes = 2; nodes <= 9; ++nodes) {
    for (int reach = 1; reach < nodes; reach *= 2) {  // of the round that is left
      constexpr int kFailing = 1;
      std::atomic<bool> failed{false};
      on_nodes(nodes, [&, nodes, reach](int node, NodeLink& link) {
        NodeMeetings meetings(link, 1, leaders_of(nodes), node);
        std::vector<std::int64_t> numbers = {node};
        if (node == kFailing) {
          EXPECT_THROW(meetings.largest(numbers, [] { throw std::runtime_error("the card is gone"); }),
                       std::runtime_error);
          failed = true;
        } else {
          while (node == (kFailing - reach + nodes) % nodes && !failed) std::this_thread::yield();
          meetings.largest(numbers, {});
          EXPECT_EQ(numbers.front(), nodes - 1);
        }
        numbers = {node == kFailing ? 1 : 0};
        meetings.largest(numbers, {});
        EXPECT_EQ(numbers.front(), 1);
      });
    }
  }
}

// One of two is in a meeting of one group, the other first in one of another: each waits for its own.
TEST(NodeMeetings, NoMessageOfOneGroupIsTakenForAnothers) {
  std::atomic<bool> left_one{false};
  on_nodes(2, [&](int node, NodeLink& link) {
    NodeMeetings one(link, 7, leaders_of(2), node);
    NodeMeetings other(link, 7 + NodeLink::kTags - 1, leaders_of(2), node);
    std::vector<std::int64_t> first = {10 + node};
    std::vector<std::int64_t> second = {20 + node};
    if (node == 0) {
      std::vector<std::int64_t> left = {13};
      EXPECT_THROW(one.largest(left, [] { throw std::runtime_error("given up"); }), std::runtime_error);
      left_one = true;
      other.largest(second, {});
      one.largest(first, {});
    } else {
      while (!left_one) std::this_thread::yield();
      other.largest(second, {});
      one.largest(first, {});
      EXPECT_EQ(first.front(), 13);
      first = {11};
      one.largest(first, {});
    }
    EXPECT_EQ(first.front(), 11);
    EXPECT_EQ(second.front(), 21);
  });
}

// Progress is what a peer may need before it can come.
TEST(NodeMeetings, ProgressIsMadeWhileNodesWait) {
  std::atomic<bool> helped{false};
  on_nodes(2, [&](int node, NodeLink& link) {
    NodeMeetings meetings(link, 0, leaders_of(2), node);
    while (node == 1 && !helped) std::this_thread::yield();
    std::vector<std::int64_t> numbers = {node};
    meetings.largest(numbers, node == 0 ? Progress([&] { helped = true; }) : Progress(), Waiting::kSleep);
  });
}

// The barrier at which ranks with nothing to do wait for a case of others takes no core from those.
TEST(NodeMeetings, ARankWithNothingToDoSleeps) {
  on_nodes(2, [](int node, NodeLink& link) {
    NodeMeetings meetings(link, 0, leaders_of(2), node);
    std::vector<std::int64_t> numbers = {node};
    if (node == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return meetings.largest(numbers, {});
    }
    const std::int64_t begin_ns = now_ns();
    const std::int64_t begin_cpu_ns = cpu_ns_of_this_thread();
    meetings.largest(numbers, {}, Waiting::kSleep);
    EXPECT_LT(2 * (cpu_ns_of_this_thread() - begin_cpu_ns), now_ns() - begin_ns);
  });
}

}  // namespace
}  // namespace linkgauge

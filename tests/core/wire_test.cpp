// What is written for another rank is what that reads, and a message that ends early is another rank's failure.
#include "base/wire.h"

#include <gtest/gtest.h>

#include "base/errors.h"

namespace linkgauge {
namespace {

TEST(Wire, WhatIsWrittenIsRead) {
  const Bytes some{std::byte{1}, std::byte{2}};
  const Bytes message = WireWriter().value(7).bytes(some).bytes({}).value(true).rest("and words").message();
  WireReader reader(message);
  EXPECT_EQ(reader.value<int>(), 7);
  EXPECT_EQ(reader.bytes(), some);
  EXPECT_TRUE(reader.bytes().empty());
  EXPECT_TRUE(reader.value<bool>());
  EXPECT_FALSE(reader.done());
  EXPECT_EQ(text_of(reader.rest()), "and words");
  EXPECT_TRUE(reader.done());
  EXPECT_TRUE(reader.rest().empty());
}

TEST(Wire, AMessageThatEndsEarlyIsAnotherRanksFailure) {
  EXPECT_THROW(WireReader(Bytes(3)).value<int>(), PeerError);
  const Bytes long_string = to_bytes(std::uint64_t{1} << 62);
  EXPECT_THROW(WireReader(long_string).bytes(), PeerError);
  EXPECT_THROW(from_bytes<int>(Bytes(3)), PeerError);
  EXPECT_THROW(from_bytes<int>(Bytes(5)), PeerError);
}

TEST(Wire, ManyValuesAreOneMessage) {
  const int values[] = {3, 4, 5};
  EXPECT_EQ(values_of<int>(to_bytes(values, 3)), (std::vector<int>{3, 4, 5}));
  EXPECT_TRUE(values_of<int>(Bytes{}).empty());
  EXPECT_EQ(from_bytes<int>(to_bytes(9)), 9);
}

}  // namespace
}  // namespace linkgauge

// The neighbors of a halo exchange, and where what they send each other lies: packed, a place for each direction, or
// in a field of cells (docs/definitions.md, Distributions).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace linkgauge {

struct Traffic;  // case_spec.h

// What a halo's distribution may be, where `text` is none over so many ranks; "" where it is.
std::string why_no_halo(const std::string& text, int ranks);

// A message between neighbors of a halo exchange.
struct HaloMessage {
  int peer = 0;
  std::size_t bytes = 0;
  std::size_t own_at = 0;   // in the buffer of the rank that asks: its source's to send, its target's to receive
  std::size_t peer_at = 0;  // in the peer's
};
struct HaloShare {
  // By the direction in which they are sent, so that those between two ranks come in one order on both. An entry of
  // either list may have no peer, at an open boundary: peer is then -1.
  std::vector<HaloMessage> sent;
  std::vector<HaloMessage> received;
  std::size_t buffer_bytes = 0;  // of the source, and of the target: a place for every direction
};
// m is the message across a face of the rank's box of cells of 8 bytes: over an edge, or a corner, go as many cells as
// it has. Along a dimension of one rank nothing is sent.
HaloShare halo_share(const Traffic& traffic, int ranks, int rank);

// Cells of 8 bytes in a field of up to three dimensions: `planes` of `rows` of runs, the first of which is at `start`.
struct HaloRegion {
  std::size_t start = 0;  // bytes
  std::size_t run_bytes = 0;
  std::size_t rows = 1;
  std::size_t row_stride = 0;  // bytes from one to the next
  std::size_t planes = 1;
  std::size_t plane_stride = 0;
};
struct HaloRegionMessage {
  int peer = 0;  // -1 at an open boundary
  HaloRegion own;
  HaloRegion peers;  // of the same shape
};
// The same messages as halo_share's, in its order, as cells of the rank's box with one layer of cells around it: what
// is sent is the box' outermost layer, what is received the layer around. The box is as long in every dimension, has
// three, and two where the grid has; the grid's dimensions are its last ones, whose cells lie next to each other.
struct HaloField {
  std::vector<HaloRegionMessage> sent;
  std::vector<HaloRegionMessage> received;
  std::size_t buffer_bytes = 0;  // of the box with its layer
};
// Why the traffic has none, in one sentence; "" where it has one.
std::string why_no_halo_field(const Traffic& traffic, int ranks);
HaloField halo_field(const Traffic& traffic, int ranks, int rank);
// look(own offset, the peer's offset, bytes) of each run of cells.
void each_run(const HaloRegionMessage& message,
              const std::function<void(std::size_t own_at, std::size_t peer_at, std::size_t bytes)>& look);

}  // namespace linkgauge

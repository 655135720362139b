#include "traffic/halo.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/case_spec.h"
#include "base/errors.h"
#include "traffic/distribution.h"
#include "traffic/parsing.h"

namespace linkgauge {
namespace {

constexpr std::size_t kCellBytes = 8;
constexpr std::size_t kMostCells = std::size_t{1}
                                   << 24;  // along a dimension of a field: its bytes are counted in 64 bits

struct Grid {
  std::vector<int> extents;  // ranks along each dimension, of two and more
  bool open = false;         // at the boundary nobody is the neighbor
  bool all = false;          // neighbors over edges and corners too
  int shift = 0;             // not 0: no grid, each sends to the one so many places on, round all ranks
};

// As even as can be, in up to three dimensions, the largest first.
std::vector<int> balanced(int ranks) {
  std::vector<int> best = {ranks};
  for (int a = 2; a * a <= ranks; ++a) {
    if (ranks % a != 0) continue;
    const int rest = ranks / a;
    if (best.size() < 3 && (best.size() == 1 || best[0] > rest)) best = {rest, a};
    for (int b = a; b * b <= rest; ++b) {
      if (rest % b != 0) continue;
      const std::vector<int> found = {rest / b, b, a};
      if (best.size() < 3 || found[0] < best[0] || (found[0] == best[0] && found[1] < best[1])) best = found;
    }
  }
  return best;
}

constexpr const char* kGridWords =
    "a grid of the ranks such as 2x2 or ring, with :open and :all as wanted, or shift:PLACES, of 1 to all ranks but "
    "one";

std::optional<Grid> grid_of(const std::string& text, int ranks) {
  Grid grid;
  if (text.starts_with("shift:")) {
    const auto places = number_in<int>(std::string_view(text).substr(6), 1, ranks - 1);
    if (!places) return {};
    grid.shift = *places;
    return grid;
  }
  bool given = false;
  for (const std::string_view word : split(text, ':')) {
    if (word == "open") {
      grid.open = true;
    } else if (word == "all") {
      grid.all = true;
    } else if (word == "ring" && !given) {
      given = true;
      grid.extents = {ranks};
    } else if (!word.empty() && !given) {
      given = true;
      std::int64_t product = 1;
      for (const std::string_view one : split(word, 'x')) {
        const auto extent = number_in<int>(one, 1, ranks);
        if (!extent) return {};
        product *= *extent;
        if (product > ranks) return {};
        if (*extent > 1) grid.extents.push_back(*extent);
      }
      if (product != ranks || grid.extents.size() > 3) return {};
    } else if (!text.empty()) {
      return {};
    }
  }
  if (!given) grid.extents = balanced(ranks);
  return grid;
}

using GridDirection = std::vector<int>;  // -1, 0 or 1 along each dimension

std::vector<GridDirection> directions_of(const Grid& grid) {
  const std::size_t dimensions = grid.extents.size();
  std::vector<GridDirection> directions;
  GridDirection one(dimensions, -1);
  for (bool more = true; more;) {
    const auto along = std::count_if(one.begin(), one.end(), [](int step) { return step != 0; });
    if (along == 1 || (grid.all && along > 1)) directions.push_back(one);
    more = false;
    for (std::size_t d = dimensions; d-- > 0 && !more;) {
      more = one[d] < 1;
      one[d] = more ? one[d] + 1 : -1;
    }
  }
  return directions;
}

std::size_t message_bytes(const Grid& grid, const GridDirection& direction, std::size_t face) {
  const auto dimensions = static_cast<int>(grid.extents.size());
  const auto along =
      static_cast<int>(std::count_if(direction.begin(), direction.end(), [](int step) { return step != 0; }));
  if (along == 1) return face;
  const double side = std::pow(static_cast<double>(face) / kCellBytes, 1.0 / (dimensions - 1));
  const double cells = std::max(1.0, std::round(std::pow(side, dimensions - along)));
  return std::min(face, static_cast<std::size_t>(cells) * kCellBytes);
}

// The neighbor in that direction; -1 beyond an open boundary.
int neighbor(const Grid& grid, int rank, const GridDirection& direction) {
  int found = 0;
  int stride = 1;
  for (std::size_t d = grid.extents.size(); d-- > 0;) {  // the last dimension's ranks lie next to each other
    const int extent = grid.extents[d];
    const int place = rank / stride % extent + direction[d];
    if (grid.open && (place < 0 || place >= extent)) return -1;
    found += (place + extent) % extent * stride;
    stride *= extent;
  }
  return found;
}

Grid asked_grid(const Traffic& traffic, int ranks) {
  std::optional<Grid> grid = grid_of(traffic.distribution, ranks);
  if (!grid) throw CallerError(why_not_distributed(traffic.pattern, traffic.distribution, ranks));
  return *std::move(grid);
}

std::size_t field_dimensions(const Grid& grid) { return grid.extents.size() == 2 ? 2 : 3; }

// The cells along a dimension of the box whose face has so many bytes; 0 where none has.
std::size_t side_of(std::size_t dimensions, std::size_t face_bytes) {
  const double cells = static_cast<double>(face_bytes) / kCellBytes;
  const auto side = static_cast<std::size_t>(std::llround(dimensions == 3 ? std::sqrt(cells) : cells));
  return side <= kMostCells && (dimensions == 3 ? side * side : side) * kCellBytes == face_bytes ? side : 0;
}

// Of a box of `side` cells: the layer within it on the side of the direction, or the one around it.
HaloRegion region_of(const GridDirection& direction, std::size_t dimensions, std::size_t side, bool around) {
  const std::size_t extent = side + 2;
  std::size_t first[3] = {0, 0, 0};
  std::size_t count[3] = {1, 1, 1};
  for (std::size_t d = 3 - dimensions; d < 3; ++d) {
    const std::size_t behind = d + direction.size();  // the grid's dimensions are the last ones
    const int step = behind < 3 ? 0 : direction[behind - 3];
    first[d] = step <= 0 ? 1 : side;
    count[d] = step == 0 ? side : 1;
    if (around && step != 0) first[d] = step < 0 ? 0 : side + 1;
  }
  const std::size_t row = extent * kCellBytes;
  return {first[0] * extent * row + first[1] * row + first[2] * kCellBytes,
          count[2] * kCellBytes,
          count[1],
          row,
          count[0],
          extent * row};
}

}  // namespace

std::string why_no_halo(const std::string& text, int ranks) { return grid_of(text, ranks) ? "" : kGridWords; }

HaloShare halo_share(const Traffic& traffic, int ranks, int rank) {
  const Grid grid = asked_grid(traffic, ranks);
  if (grid.shift > 0) {
    const int next = (rank + grid.shift) % ranks;
    const int before = (rank - grid.shift + ranks) % ranks;
    return {{{next, traffic.bytes(), 0, 0}}, {{before, traffic.bytes(), 0, 0}}, traffic.bytes()};
  }
  const std::vector<GridDirection> directions = directions_of(grid);
  const std::size_t last = directions.size() - 1;
  HaloShare share;
  std::vector<std::size_t> places;
  for (const GridDirection& direction : directions) {
    places.push_back(share.buffer_bytes);
    share.buffer_bytes += message_bytes(grid, direction, traffic.bytes());
  }
  for (std::size_t k = 0; k < directions.size(); ++k) {
    // Directions lie mirrored: what is sent in the k-th arrives from the k-th last.
    const std::size_t bytes = message_bytes(grid, directions[k], traffic.bytes());
    share.sent.push_back({neighbor(grid, rank, directions[k]), bytes, places[k], places[last - k]});
    share.received.push_back({neighbor(grid, rank, directions[last - k]), bytes, places[last - k], places[k]});
  }
  return share;
}

std::string why_no_halo_field(const Traffic& traffic, int ranks) {
  const Grid grid = asked_grid(traffic, ranks);
  if (grid.shift > 0) return "a shift has no grid, and no field of cells";
  if (side_of(field_dimensions(grid), traffic.bytes()) > 0) return "";
  const std::string face = "a face of " + std::to_string(traffic.bytes()) + " bytes is no ";
  if (field_dimensions(grid) == 2) return face + "row of up to 2^24 cells of 8; take a multiple of 8";
  const double root = std::sqrt(static_cast<double>(traffic.bytes()) / kCellBytes);
  const std::size_t side = std::clamp<std::size_t>(static_cast<std::size_t>(root), 1, kMostCells);
  return face + "square of cells of 8; the nearest size is " + std::to_string(side * side * kCellBytes);
}

HaloField halo_field(const Traffic& traffic, int ranks, int rank) {
  const Grid grid = asked_grid(traffic, ranks);
  const std::size_t dimensions = field_dimensions(grid);
  const std::size_t side = side_of(dimensions, traffic.bytes());
  if (grid.shift > 0 || side == 0) throw CallerError(why_no_halo_field(traffic, ranks));
  const std::vector<GridDirection> directions = directions_of(grid);
  HaloField field;
  field.buffer_bytes = kCellBytes * (side + 2) * (side + 2) * (dimensions == 3 ? side + 2 : 1);
  for (std::size_t k = 0; k < directions.size(); ++k) {
    // Directions lie mirrored: what goes in the k-th comes to lie around its target on the side of the k-th last.
    const GridDirection& back = directions[directions.size() - 1 - k];
    const HaloRegion leaves = region_of(directions[k], dimensions, side, false);
    const HaloRegion arrives = region_of(back, dimensions, side, true);
    field.sent.push_back({neighbor(grid, rank, directions[k]), leaves, arrives});
    field.received.push_back({neighbor(grid, rank, back), arrives, leaves});
  }
  return field;
}

void each_run(const HaloRegionMessage& message,
              const std::function<void(std::size_t own_at, std::size_t peer_at, std::size_t bytes)>& look) {
  const HaloRegion& own = message.own;
  for (std::size_t plane = 0; plane < own.planes; ++plane) {
    for (std::size_t row = 0; row < own.rows; ++row) {
      const std::size_t within = plane * own.plane_stride + row * own.row_stride;
      look(own.start + within, message.peers.start + within, own.run_bytes);
    }
  }
}

}  // namespace linkgauge

#include "traffic/distribution.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "kernels/values.h"
#include "traffic/parsing.h"
#include "traffic/schedule.h"

namespace linkgauge {
namespace {

constexpr std::uint64_t kMostWeight = std::uint64_t{1} << 40;
constexpr std::size_t kUnitBytes = 16;  // copies of whole vectors
constexpr std::uint64_t kMostTokens = 1 << 20;
constexpr std::uint64_t kMostExperts = 1 << 16;

__extension__ typedef unsigned __int128 Wide;

// weight(source, target) of each pair, up to kMostWeight.
struct Matrix {
  enum class Kind { kUniform, kZipf, kBlocks, kExperts, kRows };
  Kind kind = Kind::kUniform;
  double exponent = 0;  // of zipf's targets, or of the experts
  std::uint64_t block = 0;
  std::uint64_t experts = 0;
  std::uint64_t chosen = 0;  // experts a token
  std::uint64_t tokens = 4096;
  std::uint64_t seed = 1;
  std::vector<std::uint64_t> rows;
};

constexpr const char* kMatrixWords =
    "uniform, zipf:EXPONENT, blocks:RANKS, moe:EXPERTS:CHOSEN[:TOKENS[:EXPONENT[:SEED]]] or rows such as "
    "'0,3,1;2,0,1;1,1,0'";

std::optional<Matrix> matrix_of(const std::string& text, int ranks) {
  Matrix matrix;
  const auto n = static_cast<std::uint64_t>(ranks);
  if (text.empty() || text == "uniform") return matrix;
  if (text.find_first_of(";,") != std::string::npos) {
    matrix.kind = Matrix::Kind::kRows;
    const auto lines = split(text, ';');
    if (lines.size() != n) return {};
    for (const std::string_view line : lines) {
      const auto numbers = split(line, ',');
      if (numbers.size() != n) return {};
      for (const std::string_view one : numbers) {
        const auto weight = number_in<std::uint64_t>(one, 0, kMostWeight);
        if (!weight) return {};
        matrix.rows.push_back(*weight);
      }
    }
    return matrix;
  }
  const auto words = split(text, ':');
  const auto whole = [&](std::size_t place, std::uint64_t& value, std::uint64_t least, std::uint64_t most) {
    if (place >= words.size()) return true;
    const auto found = number_in<std::uint64_t>(words[place], least, most);
    if (found) value = *found;
    return found.has_value();
  };
  const auto real = [&](std::size_t place) {
    if (place >= words.size()) return true;
    const auto found = number_in<double>(words[place], 0.0, 16.0);
    if (found) matrix.exponent = *found;
    return found.has_value();
  };
  if (words[0] == "zipf" && words.size() == 2 && real(1)) {
    matrix.kind = Matrix::Kind::kZipf;
    return matrix;
  }
  if (words[0] == "blocks" && words.size() == 2 && whole(1, matrix.block, 2, n)) {
    matrix.kind = Matrix::Kind::kBlocks;
    return matrix;
  }
  if (words[0] == "moe" && words.size() >= 3 && words.size() <= 6 && whole(1, matrix.experts, n, kMostExperts) &&
      whole(2, matrix.chosen, 1, std::min<std::uint64_t>(matrix.experts, 64)) &&
      whole(3, matrix.tokens, 1, kMostTokens) && real(4) && whole(5, matrix.seed, 0, UINT64_MAX)) {
    matrix.kind = Matrix::Kind::kExperts;
    return matrix;
  }
  return {};
}

// splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
std::uint64_t scrambled(std::uint64_t& state) { return values::mix(state += 0x9e3779b97f4a7c15U); }

// Whole numbers in the ratio of 1 / (k + 1) ^ exponent.
std::vector<std::uint64_t> zipf(std::size_t count, double exponent) {
  std::vector<std::uint64_t> weights(count);
  for (std::size_t k = 0; k < count; ++k) {
    weights[k] =
        static_cast<std::uint64_t>(std::llround(std::ldexp(std::pow(static_cast<double>(k + 1), -exponent), 30)));
  }
  return weights;
}

// One source's row after the other.
class Rows {
 public:
  Rows(const Matrix& matrix, int ranks) : matrix_(matrix), ranks_(static_cast<std::size_t>(ranks)), row_(ranks_) {
    if (matrix.kind == Matrix::Kind::kZipf) popular_ = zipf(ranks_, matrix.exponent);
    if (matrix.kind == Matrix::Kind::kExperts) {
      popular_ = zipf(matrix.experts, matrix.exponent);
      std::partial_sum(popular_.begin(), popular_.end(), popular_.begin());
    }
  }

  const std::vector<std::uint64_t>& of(std::size_t source) {
    switch (matrix_.kind) {
      case Matrix::Kind::kUniform:
        std::fill(row_.begin(), row_.end(), 1);
        break;
      case Matrix::Kind::kZipf:
        row_ = popular_;
        break;
      case Matrix::Kind::kBlocks:
        for (std::size_t j = 0; j < ranks_; ++j) row_[j] = j / matrix_.block == source / matrix_.block ? 1 : 0;
        break;
      case Matrix::Kind::kExperts:
        route_tokens(source);
        break;
      case Matrix::Kind::kRows:
        for (std::size_t j = 0; j < ranks_; ++j) row_[j] = matrix_.rows[source * ranks_ + j];
        break;
    }
    row_[source] = 0;
    return row_;
  }

 private:
  // A token goes once to each rank that has an expert of its choice; experts lie on the ranks in equal runs.
  void route_tokens(std::size_t source) {
    std::fill(row_.begin(), row_.end(), 0);
    std::uint64_t state = matrix_.seed * 0xd1342543de82ef95U + source;
    std::vector<std::size_t> experts;
    for (std::uint64_t token = 0; token < matrix_.tokens; ++token) {
      experts.clear();
      while (experts.size() < matrix_.chosen) {
        const std::uint64_t drawn = scrambled(state) % popular_.back();
        const auto place = std::upper_bound(popular_.begin(), popular_.end(), drawn) - popular_.begin();
        const auto expert = static_cast<std::size_t>(place);
        // What is nearly never drawn is taken in turn, so that a steep distribution comes to an end.
        std::size_t free = expert;
        while (std::find(experts.begin(), experts.end(), free) != experts.end()) free = (free + 1) % matrix_.experts;
        experts.push_back(free);
      }
      std::vector<std::size_t>& ranks = experts;
      for (std::size_t& one : ranks) one = one * ranks_ / matrix_.experts;
      std::sort(ranks.begin(), ranks.end());
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
      for (const std::size_t one : ranks) ++row_[one];
    }
  }

  const Matrix& matrix_;
  std::size_t ranks_;
  std::vector<std::uint64_t> row_;
  std::vector<std::uint64_t> popular_;  // of targets, or summed up of experts
};

// look(source, target, bytes) of every pair, by source and then target.
template <typename Look>
void each_block(const Matrix& matrix, const Traffic& traffic, int ranks, const Look& look) {
  const auto n = static_cast<std::size_t>(ranks);
  if (n < 2) return look(0, 0, 0);  // nobody to send to: all weights together are none
  Rows rows(matrix, ranks);
  Wide whole = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (const std::uint64_t weight : rows.of(i)) whole += weight;
  }
  const std::size_t unit = traffic.bytes() % kUnitBytes == 0 ? kUnitBytes : 1;
  const Wide units = static_cast<Wide>(n) * (n - 1) * (traffic.bytes() / unit);
  // What has been given out up to a pair is its share of the weights up to it, rounded down: no rounding adds up.
  Wide before = 0;
  std::size_t given = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::vector<std::uint64_t>& row = rows.of(i);
    for (std::size_t j = 0; j < n; ++j) {
      before += row[j];
      const auto upto = static_cast<std::size_t>(units * before / whole);
      look(i, j, (upto - given) * unit);
      given = upto;
    }
  }
}

[[noreturn]] void refuse(const Traffic& traffic, int ranks) {
  throw CallerError(why_not_distributed(traffic.pattern, traffic.distribution, ranks));
}

Matrix asked_matrix(const Traffic& traffic, int ranks) {
  std::optional<Matrix> matrix = matrix_of(traffic.distribution, ranks);
  if (!matrix) refuse(traffic, ranks);
  return *std::move(matrix);
}

}  // namespace

std::string why_not_distributed(Pattern pattern, const std::string& text, int ranks) {
  if (text.empty()) return "";
  const std::string asked = "distribution '" + (text.size() <= 60 ? text : text.substr(0, 57) + "...") + "'";
  const std::string among = " over " + std::to_string(ranks) + " ranks";
  if (pattern == Pattern::kAlltoallv) {
    const std::optional<Matrix> matrix = matrix_of(text, ranks);
    if (!matrix) return asked + " is none of alltoallv" + among + "; expected " + kMatrixWords;
    Rows rows(*matrix, ranks);
    for (int source = 0; source < ranks; ++source) {
      for (const std::uint64_t weight : rows.of(static_cast<std::size_t>(source))) {
        if (weight > 0) return "";
      }
    }
    return asked + " sends nothing from any rank to another";
  }
  if (pattern == Pattern::kHalo) {
    const std::string expected = why_no_halo(text, ranks);
    return expected.empty() ? "" : asked + " is none of halo" + among + "; expected " + expected;
  }
  return "a distribution is of alltoallv and halo, not of " + std::string(to_string(pattern));
}

namespace {

AlltoallvShare reckoned_share(const Traffic& traffic, int ranks, int rank) {
  const Matrix matrix = asked_matrix(traffic, ranks);
  const auto n = static_cast<std::size_t>(ranks);
  const auto here = static_cast<std::size_t>(rank);
  AlltoallvShare share;
  for (auto* list :
       {&share.sent, &share.sent_at, &share.arrives_at, &share.received, &share.received_at, &share.leaves_from}) {
    list->resize(n);
  }
  std::size_t place = 0;  // in the source's buffer
  each_block(matrix, traffic, ranks, [&](std::size_t i, std::size_t j, std::size_t bytes) {
    if (j == 0) place = 0;
    if (i < here) share.arrives_at[j] += bytes;
    if (i == here) {
      share.sent[j] = bytes;
      share.sent_at[j] = place;
      share.source_bytes += bytes;
    }
    if (j == here) {
      share.received[i] = bytes;
      share.received_at[i] = share.target_bytes;
      share.leaves_from[i] = place;
      share.target_bytes += bytes;
    }
    place += bytes;
  });
  return share;
}

}  // namespace

// The layout, the schedule and MPI's call of a case each ask for one and the same.
AlltoallvShare alltoallv_share(const Traffic& traffic, int ranks, int rank) {
  struct Last {
    int ranks = 0;
    int rank = 0;
    std::size_t bytes = 0;
    std::string distribution;
    AlltoallvShare share;
  };
  static thread_local Last last;
  const bool same = last.ranks == ranks && last.rank == rank && last.bytes == traffic.bytes() &&
                    last.distribution == traffic.distribution;
  if (!same) {
    AlltoallvShare share = reckoned_share(traffic, ranks, rank);
    last = {ranks, rank, traffic.bytes(), traffic.distribution, std::move(share)};
  }
  return last.share;
}

void each_pair(const Traffic& traffic, int ranks,
               const std::function<void(int source, int target, std::size_t bytes)>& look) {
  if (traffic.pattern == Pattern::kAlltoallv) {
    each_block(asked_matrix(traffic, ranks), traffic, ranks, [&](std::size_t i, std::size_t j, std::size_t bytes) {
      if (bytes > 0) look(static_cast<int>(i), static_cast<int>(j), bytes);
    });
    return;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    for (const HaloMessage& message : halo_share(traffic, ranks, rank).sent) {
      if (message.peer >= 0) look(rank, message.peer, message.bytes);
    }
  }
}

RankBytes rank_bytes(const Traffic& traffic, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  RankBytes result{std::vector<std::size_t>(n), std::vector<std::size_t>(n)};
  each_pair(traffic, ranks, [&](int source, int target, std::size_t bytes) {
    result.sent[static_cast<std::size_t>(source)] += bytes;
    result.received[static_cast<std::size_t>(target)] += bytes;
  });
  return result;
}

}  // namespace linkgauge

#include "case_spec.h"

#include <sstream>

#include "errors.h"
#include "words.h"

namespace linkgauge {
namespace {

constexpr Words<Cadence, 4> kCadences{"cadence",
                                      {{{Cadence::kIsolated, "isolated"},
                                        {Cadence::kStreaming, "streaming"},
                                        {Cadence::kGated, "gated"},
                                        {Cadence::kBarrier, "barrier"}}}};
constexpr Words<Arrival, 3> kArrivals{
    "arrival", {{{Arrival::kDeadline, "deadline"}, {Arrival::kSkewed, "skewed"}, {Arrival::kFree, "free"}}}};
constexpr Words<ClockKind, 2> kClocks{"clock", {{{ClockKind::kHost, "host"}, {ClockKind::kEvent, "event"}}}};
constexpr Words<Datatype, 12> kDatatypes{"datatype",
                                         {{{Datatype::kInt8, "int8"},
                                           {Datatype::kUint8, "uint8"},
                                           {Datatype::kInt32, "int32"},
                                           {Datatype::kUint32, "uint32"},
                                           {Datatype::kInt64, "int64"},
                                           {Datatype::kUint64, "uint64"},
                                           {Datatype::kFloat16, "float16"},
                                           {Datatype::kBfloat16, "bfloat16"},
                                           {Datatype::kFloat32, "float32"},
                                           {Datatype::kFloat64, "float64"},
                                           {Datatype::kFloat8E4m3, "float8_e4m3"},
                                           {Datatype::kFloat8E5m2, "float8_e5m2"}}}};
constexpr Words<ReduceOp, 5> kOps{"op",
                                  {{{ReduceOp::kSum, "sum"},
                                    {ReduceOp::kProd, "prod"},
                                    {ReduceOp::kMin, "min"},
                                    {ReduceOp::kMax, "max"},
                                    {ReduceOp::kAvg, "avg"}}}};
constexpr Words<Initiator, 2> kInitiators{"initiator",
                                          {{{Initiator::kSender, "sender"}, {Initiator::kReceiver, "receiver"}}}};
constexpr Words<StopRuleKind, 3> kStopRules{
    "stop rule",
    {{{StopRuleKind::kCount, "count"}, {StopRuleKind::kInterval, "interval"}, {StopRuleKind::kDuration, "duration"}}}};

}  // namespace

void from_word(std::string_view word, Cadence& value) { value = kCadences.from(word); }
void from_word(std::string_view word, Arrival& value) { value = kArrivals.from(word); }
void from_word(std::string_view word, ClockKind& value) { value = kClocks.from(word); }
void from_word(std::string_view word, Datatype& value) { value = kDatatypes.from(word); }
void from_word(std::string_view word, ReduceOp& value) { value = kOps.from(word); }
void from_word(std::string_view word, Initiator& value) { value = kInitiators.from(word); }
void from_word(std::string_view word, StopRuleKind& value) { value = kStopRules.from(word); }
std::string_view to_string(Datatype value) { return kDatatypes.name_of(value); }
std::string_view to_string(ReduceOp value) { return kOps.name_of(value); }

std::vector<std::pair<std::string, std::string>> settings_of(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> found;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t mark = word.find('=');
    if (mark == 0 || mark == std::string::npos)
      throw CallerError("settings: '" + word + "' is none, expected NAME=VALUE");
    found.emplace_back(word.substr(0, mark), word.substr(mark + 1));
  }
  return found;
}

std::size_t size_of(Datatype value) {
  switch (value) {
    case Datatype::kInt8:
    case Datatype::kUint8:
    case Datatype::kFloat8E4m3:
    case Datatype::kFloat8E5m2:
      return 1;
    case Datatype::kFloat16:
    case Datatype::kBfloat16:
      return 2;
    case Datatype::kInt32:
    case Datatype::kUint32:
    case Datatype::kFloat32:
      return 4;
    case Datatype::kInt64:
    case Datatype::kUint64:
    case Datatype::kFloat64:
      return 8;
  }
  throw CallerError("unknown datatype number " + std::to_string(static_cast<int>(value)));
}

}  // namespace linkgauge

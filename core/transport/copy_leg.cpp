#include "transport/copy_leg.h"

#include <algorithm>
#include <string>
#include <vector>

namespace linkgauge {

namespace {

std::shared_ptr<Stream> stream_for(const RankContext& context, int device) {
  using Streams = std::vector<std::weak_ptr<Stream>>;
  const auto fresh = [&] { return std::make_shared<Stream>(*context.runtime, device); };
  if (context.lasting == nullptr) return fresh();
  std::shared_ptr<void>& kept = (*context.lasting)["copy streams of device " + std::to_string(device)];
  if (!kept) kept = std::make_shared<Streams>();
  Streams& streams = *static_cast<Streams*>(kept.get());
  std::erase_if(streams, [](const std::weak_ptr<Stream>& stream) { return stream.expired(); });
  if (streams.size() < context.runtime->most_copy_streams(device)) {
    std::shared_ptr<Stream> stream = fresh();
    streams.push_back(stream);
    return stream;
  }
  return std::min_element(streams.begin(), streams.end(),
                          [](const auto& a, const auto& b) { return a.use_count() < b.use_count(); })
      ->lock();
}

}  // namespace

CopyStream::CopyStream(const RankContext& context, int device) : stream_(stream_for(context, device)) {}

CopyStream::~CopyStream() {
  if (stream_.use_count() > 1) stream_->end();  // the last to go takes the stream along, which ends what is queued
}

}  // namespace linkgauge

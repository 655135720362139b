// Links between nodes that are threads of one process: what MPI is otherwise between them, queues are here.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <vector>

#include "base/wire.h"
#include "group/node_link.h"

namespace linkgauge {

// The queues, and what went by them.
struct Mail {
  std::mutex mutex;
  std::map<std::tuple<int, int, int>, std::deque<Bytes>> ways;  // by source, target and tag
  std::vector<std::size_t> sent;                                // bytes of each message
};

class MailTransfer final : public NodeTransfer {
 public:
  MailTransfer(std::shared_ptr<Mail> mail, int rank, int tag) : mail_(std::move(mail)), rank_(rank), tag_(tag) {}
  void begin(int to, std::span<const std::byte> sent, int from, std::size_t expected) override {
    const std::lock_guard lock(mail_->mutex);
    mail_->ways[{rank_, to, tag_}].emplace_back(sent.begin(), sent.end());
    mail_->sent.push_back(sent.size());
    from_ = from;
    expected_ = expected;
  }
  bool done() override {
    const std::lock_guard lock(mail_->mutex);
    std::deque<Bytes>& way = mail_->ways[{from_, rank_, tag_}];
    if (way.empty()) return false;
    received_ = std::move(way.front());
    way.pop_front();
    if (received_.size() != expected_) throw PeerError("ranks are at different meetings");
    return true;
  }
  std::span<const std::byte> received() const override { return received_; }

 private:
  std::shared_ptr<Mail> mail_;
  int rank_;
  int tag_;
  int from_ = 0;
  std::size_t expected_ = 0;
  Bytes received_;
};

class MailLink final : public NodeLink {
 public:
  MailLink(std::shared_ptr<Mail> mail, int rank) : mail_(std::move(mail)), rank_(rank) {}
  std::unique_ptr<NodeTransfer> transfer(int tag) override { return std::make_unique<MailTransfer>(mail_, rank_, tag); }

 private:
  std::shared_ptr<Mail> mail_;
  int rank_;
};

}  // namespace linkgauge

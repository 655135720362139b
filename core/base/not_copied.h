// For what has an identity of its own, or gives something back when it goes.
#pragma once

namespace linkgauge {

class NotCopied {
 public:
  NotCopied() = default;
  NotCopied(const NotCopied&) = delete;
  NotCopied& operator=(const NotCopied&) = delete;

 protected:
  ~NotCopied() = default;
};

}  // namespace linkgauge

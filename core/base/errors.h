// The exception family of the core, by who must act. Bindings map each to a Python exception.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace linkgauge {

// Base: one line that names the cause, the thing, and what would be right.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller asked for something that cannot be (wrong dimension, unknown name).
class CallerError : public Error {
 public:
  using Error::Error;
};

// A runtime, driver or library call returned an error.
class RuntimeCallError : public Error {
 public:
  RuntimeCallError(std::string call, std::string code_name, long code, int device, const std::string& detail)
      : Error(call + " failed with " + code_name + " (" + std::to_string(code) + ")" +
              (device >= 0 ? " on device " + std::to_string(device) : std::string()) +
              (detail.empty() ? std::string() : ": " + detail)),
        call_(std::move(call)),
        code_name_(std::move(code_name)),
        code_(code),
        device_(device) {}

  const std::string& call() const { return call_; }
  const std::string& code_name() const { return code_name_; }
  long code() const { return code_; }
  int device() const { return device_; }  // -1: no device

 private:
  std::string call_;
  std::string code_name_;
  long code_;
  int device_;
};

// Memory of some kind could not be had.
class MemoryError : public Error {
 public:
  using Error::Error;
};

// Another rank failed, left or does not answer; this rank only passes it on.
class PeerError : public Error {
 public:
  using Error::Error;
};

// What was asked is not possible here: becomes the case's `skipped` with this reason.
class Unsupported : public Error {
 public:
  using Error::Error;
};

}  // namespace linkgauge

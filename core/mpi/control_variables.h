// Control variables of an MPI library (MPI_T), written while it runs, before a communicator is made that is to heed
// them.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace linkgauge {

class ControlVariables {
 public:
  // `library`: the MPI library, as dlopen gave it. Begins MPI_T when it is first asked for a variable.
  explicit ControlVariables(void* library) : library_(library) {}

  // Gives what an earlier call has changed its old value back, then writes these ("NAME=VALUE NAME=VALUE", numbers in
  // digits; Open MPI's names with OMPI_MCA_ or without) and reads each again. "" or why one cannot be had, and then all
  // are as they were.
  std::string settle(const std::string& settings);

 private:
  using Content = std::vector<std::byte>;
  struct Variable {
    void* handle = nullptr;
    int count = 0;
  };
  std::string begin();
  std::string open(const std::string& name, Variable& found);
  std::string write(const std::string& name, const std::string& value);
  int read(const Variable& variable, Content& content) const;

  void* library_;
  bool begun_ = false;
  int (*init_thread_)(int, int*) = nullptr;
  int (*get_index_)(const char*, int*) = nullptr;
  int (*handle_alloc_)(int, void*, void**, int*) = nullptr;
  int (*read_)(void*, void*) = nullptr;
  int (*write_)(void*, const void*) = nullptr;
  std::vector<std::pair<Variable, Content>> changed_;  // with what they had before
  std::vector<std::pair<std::string, Variable>> known_;
};

}  // namespace linkgauge

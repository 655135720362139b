// Control variables of an MPI library (MPI_T), written while it runs, before a communicator is made that is to heed
// them.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/symbols.h"

namespace linkgauge {

class ControlVariables {
 public:
  // Begins MPI_T of `library` when it is first asked for a variable.
  explicit ControlVariables(SharedLibrary library) : library_(std::move(library)) {}

  // Gives what an earlier call has changed its old value back, then writes these ("NAME=VALUE NAME=VALUE", numbers in
  // digits; Open MPI's names with OMPI_MCA_ or without) and reads each again. "" or why one cannot be had, and then all
  // are as they were.
  std::string settle(const std::string& settings);

 private:
#define LINKGAUGE_MPI_T_API(REQUIRED, OPTIONAL)                    \
  REQUIRED(MPI_T_init_thread, int(int, int*))                      \
  REQUIRED(MPI_T_cvar_get_index, int(const char*, int*))           \
  REQUIRED(MPI_T_cvar_handle_alloc, int(int, void*, void**, int*)) \
  REQUIRED(MPI_T_cvar_read, int(void*, void*))                     \
  REQUIRED(MPI_T_cvar_write, int(void*, const void*))
  struct Calls {
    LINKGAUGE_SYMBOL_TABLE(LINKGAUGE_MPI_T_API)
  };
  using Content = std::vector<std::byte>;
  struct Variable {
    void* handle = nullptr;
    int count = 0;
  };
  std::string begin();
  std::string open(const std::string& name, Variable& found);
  std::string write(const std::string& name, const std::string& value);
  int read(const Variable& variable, Content& content) const;

  SharedLibrary library_;
  bool begun_ = false;
  Calls calls_;
  std::vector<std::pair<Variable, Content>> changed_;  // with what they had before
  std::vector<std::pair<std::string, Variable>> known_;
};

}  // namespace linkgauge

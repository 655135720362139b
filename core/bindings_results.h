// What a session has found, as Python's dicts and numpy's columns.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <functional>
#include <memory>
#include <vector>

#include "run/session.h"

namespace linkgauge {

// A numpy column of one value a row: get(row), or that member of it.
template <typename Value, typename Rows, typename Get>
nanobind::object column(const Rows& rows, const Get& get) {
  auto values = std::make_unique<std::vector<Value>>();
  values->reserve(rows.size());
  for (const auto& row : rows) values->push_back(static_cast<Value>(std::invoke(get, row)));
  std::vector<Value>* held = values.release();
  const nanobind::capsule owner(held, [](void* pointer) noexcept { delete static_cast<std::vector<Value>*>(pointer); });
  return nanobind::cast(
      nanobind::ndarray<nanobind::numpy, Value, nanobind::ndim<1>>(held->data(), {held->size()}, owner));
}

nanobind::dict to_python(const CaseResult& result);

}  // namespace linkgauge

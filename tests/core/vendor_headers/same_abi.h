// Whether two function types are called the same way: what a table restates against what a vendor's header declares.
#pragma once

#include <type_traits>

namespace linkgauge {

// Enumerations pass as the integer of their size; pointers of the same depth to incomplete types are one pointer.
template <typename T>
using Passed = typename std::conditional_t<std::is_enum_v<T>, std::underlying_type<T>, std::type_identity<T>>::type;

template <typename A, typename B>
consteval bool same_pointee();

template <typename A, typename B>
consteval bool same_passing() {
  using X = Passed<std::remove_cv_t<A>>;
  using Y = Passed<std::remove_cv_t<B>>;
  if constexpr (std::is_pointer_v<X> && std::is_pointer_v<Y>) {
    return same_pointee<std::remove_cv_t<std::remove_pointer_t<X>>, std::remove_cv_t<std::remove_pointer_t<Y>>>();
  } else if constexpr (std::is_void_v<X> || std::is_void_v<Y>) {
    return std::is_void_v<X> && std::is_void_v<Y>;
  } else if constexpr (std::is_integral_v<X> && std::is_integral_v<Y>) {
    return sizeof(X) == sizeof(Y);
  } else if constexpr (std::is_class_v<X> && std::is_class_v<Y>) {
    return sizeof(X) == sizeof(Y) && std::is_trivially_copyable_v<X> && std::is_trivially_copyable_v<Y>;
  } else {
    return std::is_same_v<X, Y>;
  }
}

template <typename T>
concept Complete = requires {
  sizeof(T);
};

// Void or a type that is only named is any handle; else the pointees must agree.
template <typename A, typename B>
consteval bool same_pointee() {
  if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
    return true;
  } else if constexpr (std::is_function_v<A> || std::is_function_v<B>) {
    return std::is_same_v<A, B>;
  } else if constexpr (!Complete<A> || !Complete<B>) {
    return std::is_class_v<A> && std::is_class_v<B>;
  } else {
    return same_passing<A, B>();
  }
}

template <typename Mine, typename Theirs>
struct SameAbi : std::false_type {};
template <typename R, typename S, typename... As, typename... Bs>
requires(sizeof...(As) == sizeof...(Bs)) struct SameAbi<R(As...), S(Bs...)>
    : std::bool_constant<same_passing<R, S>() && (same_passing<As, Bs>() && ...)> {
};

static_assert(SameAbi<int(unsigned, void**), int(unsigned, struct SomeHandle**)>::value);
static_assert(!SameAbi<int(unsigned), int(unsigned long)>::value);
static_assert(!SameAbi<int(int*), int(long*)>::value);
static_assert(!SameAbi<int(int), int(int, int)>::value);
static_assert(!SameAbi<int(float*), int(int*)>::value);

}  // namespace linkgauge

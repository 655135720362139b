// How what is restated of a vendor's header is compared with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

// Fields that are restated lie where the header has them, and are as large.
#define LINKGAUGE_SAME_FIELD(Mine, mine, Theirs, theirs)                                                          \
  static_assert(offsetof(Mine, mine) == offsetof(Theirs, theirs) && sizeof(Mine::mine) == sizeof(Theirs::theirs), \
                #Mine "::" #mine " differs from " #Theirs "::" #theirs)

#define LINKGAUGE_SAME_VALUE(mine, theirs) \
  static_assert(static_cast<std::uint64_t>(mine) == static_cast<std::uint64_t>(theirs), #mine)

namespace linkgauge {

// Every function that is called through the table takes as many arguments, of the same sizes.
template <typename Mine, typename Theirs>
struct SameCall : std::false_type {};
template <typename R, typename S, typename... As, typename... Bs>
requires(sizeof...(As) == sizeof...(Bs)) struct SameCall<R(As...), S(Bs...)>
    : std::bool_constant<(std::is_void_v<R> == std::is_void_v<S>)&&(
          (sizeof(As) == sizeof(Bs) && std::is_pointer_v<As> == std::is_pointer_v<Bs>)&&...)> {
};

}  // namespace linkgauge

#define LINKGAUGE_COMPARE(name, ...)                                                    \
  static_assert(SameCall<__VA_ARGS__, std::remove_pointer_t<decltype(&::name)>>::value, \
                #name " differs from the header");

/// Names the values of enumerations, for settings, messages and reports. The name of a value is its identifier, unless
/// the enumeration lists other names. Renaming an enumerator therefore changes what users read and write.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace troupe {

/// Returns the identifier of the enumerator \p Value; empty if no enumerator has this value. In the name of this
/// function GCC and clang write "Value = troupe::fusion::off", or, without an enumerator, "Value = (troupe::fusion)3".
template <auto Value>
consteval std::string_view identifier_of() {
  constexpr std::string_view mark = "Value = ";
  std::string_view text{__PRETTY_FUNCTION__};
  text.remove_prefix(text.find(mark) + mark.size());
  if (text.starts_with('(')) return {};
  text = text.substr(0, text.find_first_of(";]"));
  return text.substr(text.rfind(':') + 1);
}

/// Returns the number of enumerators of \p Enum, whose values count from 0.
template <class Enum, std::size_t Counted = 0>
consteval std::size_t enumerator_count() {
  if constexpr (identifier_of<static_cast<Enum>(Counted)>().empty())
    return Counted;
  else
    return enumerator_count<Enum, Counted + 1>();
}

template <class Enum>
concept scoped_enum = std::is_enum_v<Enum> && !std::convertible_to<Enum, int>;

/// All values of \p Enum in their order.
template <scoped_enum Enum>
inline constexpr auto enum_values = [] {
  std::array<Enum, enumerator_count<Enum>()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Enum>(i);
  return all;
}();

/// The identifier, null-terminated.
template <auto Value>
inline constexpr auto identifier_text = [] {
  constexpr std::string_view name = identifier_of<Value>();
  std::array<char, name.size() + 1> text{};
  for (std::size_t i = 0; i < name.size(); ++i) text[i] = name[i];
  return text;
}();

template <class Enum, std::size_t... Value>
consteval std::array<std::string_view, sizeof...(Value)> identifiers_of(std::index_sequence<Value...>) {
  return {std::string_view{identifier_text<static_cast<Enum>(Value)>.data(),
                           identifier_text<static_cast<Enum>(Value)>.size() - 1}...};
}

/// The names of the values of \p Enum in their order. An enumeration has other names than the identifiers if a
/// specialization next to its definition lists them:
///   template <>
///   inline constexpr std::array<std::string_view, 2> enum_names<thread_placement>{"near", "none"};
template <scoped_enum Enum>
inline constexpr auto enum_names = identifiers_of<Enum>(std::make_index_sequence<enumerator_count<Enum>()>{});

/// Returns the name of \p value, null-terminated; empty if \p value is not an enumerator. For an enumeration in an
/// inner namespace, put `using troupe::to_string` there.
template <scoped_enum Enum>
[[nodiscard]] constexpr std::string_view to_string(Enum value) noexcept {
  constexpr auto& names = enum_names<Enum>;
  static_assert(names.size() == enumerator_count<Enum>() && !names.back().empty(),
                "enum_names has one name for each enumerator, whose values count from 0");
  const auto index = static_cast<std::size_t>(value);
  return index < names.size() ? names[index] : std::string_view{};
}

/// Returns the names of \p values.
template <scoped_enum Enum, std::size_t Count>
[[nodiscard]] constexpr std::array<std::string_view, Count> names_of(const std::array<Enum, Count>& values) noexcept {
  std::array<std::string_view, Count> names;
  for (std::size_t i = 0; i < Count; ++i) names[i] = to_string(values[i]);
  return names;
}

/// Returns \p names separated by commas, for messages: "off, plans, free".
[[nodiscard]] std::string listed(std::span<const std::string_view> names);

/// Returns the index of \p name in \p names. Errors: invalid_argument ("unknown WHAT 'NAME'", and the names).
[[nodiscard]] std::size_t index_in(std::span<const std::string_view> names, std::string_view what,
                                   std::string_view name);

/// Returns the value called \p name. Errors: those of index_in().
template <scoped_enum Enum>
[[nodiscard]] Enum parse_enum(std::string_view what, std::string_view name) {
  return static_cast<Enum>(index_in(enum_names<Enum>, what, name));
}
/// Returns the one of \p choices that is called \p name. Errors: those of index_in().
template <scoped_enum Enum, std::size_t Count>
[[nodiscard]] Enum parse_enum(std::string_view what, std::string_view name, const std::array<Enum, Count>& choices) {
  return choices[index_in(names_of(choices), what, name)];
}

} // namespace troupe

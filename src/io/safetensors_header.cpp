// SPDX-License-Identifier: BSD-3-Clause
#include "io/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "io/file_error.hpp"
#include "io/safetensors.hpp"

namespace openvc::io {
namespace {

/// Characters of the header, and how many of them the parser has taken: nlohmann's handlers are not
/// told where they are.
class CountedText {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountedText(const char* at, const char** taken) : at_(at), taken_(taken) {}
  reference operator*() const { return *at_; }
  CountedText& operator++() {
    *taken_ = ++at_;
    return *this;
  }
  CountedText operator++(int) {
    CountedText old = *this;
    ++*this;
    return old;
  }
  bool operator==(const CountedText& other) const { return at_ == other.at_; }
  bool operator!=(const CountedText& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** taken_;
};

constexpr std::string_view kSize = "an integer from 0 to 2^63 - 1";

/// Takes the events of the JSON parser. Whatever departs from the structure of a header is refused
/// where it begins, so that neither deep nor large nonsense costs memory.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderHandler(std::string_view text, const std::filesystem::path& path)
      : text_(text), path_(path), taken_(text.data()) {}

  SafetensorsHeader parse() {
    // The parser would take it for the end.
    if (const std::size_t zero = text_.find('\0'); zero != std::string_view::npos) {
      taken_ = text_.data() + zero + 1;
      refuse("text without null characters");
    }
    nlohmann::json::sax_parse(CountedText(text_.data(), &taken_),
                              CountedText(text_.data() + text_.size(), &taken_), this);
    return std::move(header_);
  }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::before:
        return enter(Place::header);
      case Place::header_value:
        return enter(is_metadata_ ? Place::metadata : Place::tensor);
      default:
        refuse(expected());
    }
  }

  bool key(std::string& name) override {
    if (place_ == Place::header) {
      is_metadata_ = name == kSafetensorsMetadataKey;
      if (!is_metadata_) {
        tensor_ = {};
        tensor_.name = std::move(name);
      } else if (std::exchange(has_metadata_, true)) {
        refuse_repetition(kSafetensorsMetadataKey, "the header");
      }
      return enter(Place::header_value);
    }
    if (place_ == Place::metadata) {
      key_ = std::move(name);
      if (header_.metadata.contains(key_)) refuse_repetition(key_, "the metadata");
      return enter(Place::metadata_value);
    }
    constexpr std::array kKeys = {std::pair{std::string_view("dtype"), Place::type},
                                  std::pair{std::string_view("shape"), Place::shape},
                                  std::pair{std::string_view("data_offsets"), Place::offsets}};
    for (const auto& [known, value] : kKeys) {
      if (name != known) continue;
      if (has(value)) refuse_repetition(name, owner());
      return enter(value);
    }
    throw_malformed(path_, "the key " + quote_for_message(name) + " in " + owner(),
                    "only 'dtype', 'shape' and 'data_offsets'");
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata_value) {
      header_.metadata.emplace(std::move(key_), std::move(value));
      return enter(Place::metadata);
    }
    if (place_ != Place::type) refuse(expected());
    tensor_.type = std::move(value);
    return enter(Place::tensor);
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::shape) {
      tensor_.shape.emplace();
      return enter(Place::extents);
    }
    if (place_ != Place::offsets) refuse(expected());
    tensor_.offsets.emplace();
    return enter(Place::offset_pair);
  }

  bool number_unsigned(number_unsigned_t value) override {
    const bool is_extent = place_ == Place::extents;
    if (!is_extent && place_ != Place::offset_pair) refuse(expected());
    if (!std::in_range<std::int64_t>(value)) refuse(kSize);
    std::vector<std::int64_t>& numbers = is_extent ? *tensor_.shape : *tensor_.offsets;
    if (is_extent && numbers.size() == kMaxRank) {
      throw_malformed(path_, "more than " + std::to_string(kMaxRank) + " dimensions in " + owner(),
                      "at most that many");
    }
    // How many offsets there are is said at their end; more than kOffsets need no memory for that.
    if (is_extent || numbers.size() <= kOffsets) {
      numbers.push_back(static_cast<std::int64_t>(value));
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offset_pair && tensor_.offsets->size() != kOffsets) {
      throw_malformed(
          path_,
          (tensor_.offsets->size() > kOffsets ? std::string("more than two")
                                              : std::to_string(tensor_.offsets->size())) +
              " data_offsets in " + owner(),
          "two: begin and end");
    }
    return enter(Place::tensor);
  }

  bool end_object() override {
    if (place_ == Place::header) return enter(Place::after);
    if (place_ == Place::tensor) add_tensor();
    return enter(Place::header);
  }

  bool number_integer(number_integer_t) override { refuse(expected()); }
  bool number_float(number_float_t, const string_t&) override { refuse(expected()); }
  bool null() override { refuse(expected()); }
  bool boolean(bool) override { refuse(expected()); }
  bool binary(binary_t&) override { refuse(expected()); }

  bool parse_error(std::size_t, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    if (place_ == Place::after) refuse("nothing after the outermost value");
    const std::string_view reason = error.what();
    if (reason.find("UTF-8") != std::string_view::npos) refuse("valid UTF-8");
    const bool at_end = taken_ == text_.data() + text_.size() && token.empty();
    refuse(at_end ? "the rest of a JSON object" : "JSON text: " + expected());
  }

 private:
  /// Where the parser is: what comes next, or what it is inside of.
  enum class Place : std::uint8_t {
    before,
    header,
    header_value,
    metadata,
    metadata_value,
    tensor,
    type,
    shape,
    extents,
    offsets,
    offset_pair,
    after,
  };

  static constexpr std::size_t kOffsets = 2;  // begin and end

  struct RawTensor {
    std::string name;
    std::optional<std::string> type;
    std::optional<std::vector<std::int64_t>> shape;
    std::optional<std::vector<std::int64_t>> offsets;
  };

  bool enter(Place place) {
    place_ = place;
    return true;
  }

  [[nodiscard]] bool has(Place value) const {
    return value == Place::type    ? tensor_.type.has_value()
           : value == Place::shape ? tensor_.shape.has_value()
                                   : tensor_.offsets.has_value();
  }

  [[nodiscard]] std::string owner() const { return "tensor " + quote_for_message(tensor_.name); }

  [[nodiscard]] std::string expected() const {
    switch (place_) {
      case Place::before:
      case Place::header_value:
        return "an object";
      case Place::metadata_value:
      case Place::type:
        return "a string";
      case Place::shape:
      case Place::offsets:
        return "an array";
      case Place::extents:
      case Place::offset_pair:
        return std::string(kSize);
      case Place::header:
      case Place::metadata:
      case Place::tensor:
        return "a key in quotes";
      case Place::after:
        break;
    }
    return "nothing after the outermost value";
  }

  void add_tensor() {
    if (!tensor_.type || !tensor_.shape || !tensor_.offsets) {
      const std::string missing = !tensor_.type    ? "'dtype'"
                                  : !tensor_.shape ? "'shape'"
                                                   : "'data_offsets'";
      throw_malformed(path_, owner() + " without " + missing,
                      "'dtype', 'shape' and 'data_offsets'");
    }
    const auto info =
        std::ranges::find(kStoredTypes, *tensor_.type, &StoredTypeInfo::safetensors_name);
    DeclaredTensor declared;
    declared.entry.name = std::move(tensor_.name);
    // An empty name is that of the unknown type itself.
    const bool known = info != kStoredTypes.end() && !tensor_.type->empty();
    declared.entry.type = known ? info->type : StoredType::unknown;
    if (!known) declared.entry.unknown_type = *std::move(tensor_.type);
    declared.entry.shape = *std::move(tensor_.shape);
    declared.range = {.begin = tensor_.offsets->front(), .end = tensor_.offsets->back()};
    header_.tensors.push_back(std::move(declared));
  }

  [[noreturn]] void refuse_repetition(std::string_view key, const std::string& where) {
    throw_malformed(path_, "the key " + quote_for_message(key) + " twice in " + where,
                    "each key once");
  }

  /// `taken_` is behind the character that cannot be taken.
  [[noreturn]] void refuse(std::string_view expected) const {
    constexpr std::size_t kShownBytes = 16;
    const auto taken = static_cast<std::size_t>(taken_ - text_.data());
    const std::size_t position = taken > 0 ? taken - 1 : 0;
    const std::string where = " at byte " + std::to_string(position) + " of the header";
    throw_malformed(path_, quote_for_message(text_.substr(position, kShownBytes)) + where,
                    std::string(expected));
  }

  std::string_view text_;
  const std::filesystem::path& path_;
  const char* taken_;
  Place place_ = Place::before;
  bool is_metadata_ = false;  // the value that comes next
  bool has_metadata_ = false;
  std::string key_;
  RawTensor tensor_;
  SafetensorsHeader header_;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text,
                                           const std::filesystem::path& path) {
  return HeaderHandler(text, path).parse();
}

}  // namespace openvc::io

// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file_error.hpp"
#include "io/little_endian.hpp"
#include "io/npy.hpp"
#include "io/npy_format.hpp"

namespace openvc::io {
namespace {

/// A header of plain numbers needs a few hundred bytes; only structured types have long ones.
constexpr std::size_t kMaxHeaderBytes = 65'535;

struct ArrayHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// Reads the dictionary of the header: exactly the keys 'descr', 'fortran_order' and 'shape', with
/// the few forms of Python literals that NumPy writes for them.
class DictionaryParser {
 public:
  DictionaryParser(std::string_view text, const std::filesystem::path& path)
      : text_(text), path_(path) {}

  ArrayHeader parse() {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::int64_t>> shape;
    expect('{');
    while (!consume('}')) {
      const std::string key = read_string();
      expect(':');
      if (key == "descr" && !descr) {
        descr = read_descr();
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = read_bool();
      } else if (key == "shape" && !shape) {
        shape = read_shape();
      } else {
        throw_malformed(path_, "the key " + quote_for_message(key) + " in the header",
                        kExpectedKeys);
      }
      if (!consume(',')) {
        expect('}');
        break;
      }
    }
    skip_white_space();
    if (position_ != text_.size()) refuse("nothing after the dictionary");
    if (!descr || !fortran_order || !shape) {
      const std::string missing = !descr           ? "'descr'"
                                  : !fortran_order ? "'fortran_order'"
                                                   : "'shape'";
      throw_malformed(path_, "a header without " + missing, kExpectedKeys);
    }
    return {*std::move(descr), *fortran_order, *std::move(shape)};
  }

 private:
  static constexpr const char* kExpectedKeys = "'descr', 'fortran_order' and 'shape', each once";

  std::string read_descr() {
    skip_white_space();
    if (text_.substr(position_).starts_with('[')) {
      throw FileError(FileErrorReason::unsupported, path_,
                      {.found = "a structured array, whose elements have fields",
                       .expected = "an array of plain numbers",
                       .advice = "Save each field by itself: numpy.save(path, array['field'])."});
    }
    return read_string();
  }

  std::string read_string() {
    skip_white_space();
    const char quote = position_ < text_.size() ? text_[position_] : '\0';
    if (quote != '\'' && quote != '"') refuse("a string");
    const std::size_t begin = position_ + 1;
    const std::size_t end = text_.find(quote, begin);
    if (end == std::string_view::npos) refuse("a string with its closing quote");
    const std::string_view value = text_.substr(begin, end - begin);
    if (value.find('\\') != std::string_view::npos) refuse("a string without escapes");
    position_ = end + 1;
    return std::string(value);
  }

  bool read_bool() {
    skip_white_space();
    for (const auto& [word, value] :
         {std::pair{std::string_view("False"), false}, {"True", true}}) {
      if (text_.substr(position_).starts_with(word)) {
        position_ += word.size();
        return value;
      }
    }
    refuse("True or False");
  }

  std::vector<std::int64_t> read_shape() {
    std::vector<std::int64_t> shape;
    expect('(');
    bool ends_with_comma = false;
    while (!consume(')')) {
      if (shape.size() == kMaxRank) refuse("at most " + std::to_string(kMaxRank) + " dimensions");
      shape.push_back(read_extent());
      ends_with_comma = consume(',');
      if (!ends_with_comma) {
        expect(')');
        break;
      }
    }
    // In Python "(3)" is the number 3; the tuple is "(3,)".
    if (shape.size() == 1 && !ends_with_comma) refuse("a comma in a shape of one dimension");
    return shape;
  }

  std::int64_t read_extent() {
    skip_white_space();
    const std::string_view rest = text_.substr(position_);
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    std::int64_t extent = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), extent);
    const bool leading_zero = rest.size() > 1 && rest[0] == '0' && is_digit(rest[1]);
    if (rest.empty() || !is_digit(rest[0]) || leading_zero || error != std::errc{}) {
      refuse("a dimension from 0 to 2^63 - 1");
    }
    position_ += static_cast<std::size_t>(end - rest.data());
    return extent;
  }

  void skip_white_space() noexcept {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n')) {
      ++position_;
    }
  }

  bool consume(char symbol) noexcept {
    skip_white_space();
    if (position_ == text_.size() || text_[position_] != symbol) return false;
    ++position_;
    return true;
  }

  void expect(char symbol) {
    if (!consume(symbol)) refuse(std::string{'\'', symbol, '\''});
  }

  [[noreturn]] void refuse(std::string expected) const {
    constexpr std::size_t kShownBytes = 16;
    throw_malformed(path_,
                    quote_for_message(text_.substr(position_, kShownBytes)) + " at byte " +
                        std::to_string(position_) + " of the header",
                    std::move(expected));
  }

  std::string_view text_;
  const std::filesystem::path& path_;
  std::size_t position_ = 0;
};

struct FileParts {
  std::string_view header;
  std::span<const std::byte> data;
};

FileParts split_file(std::span<const std::byte> file, const std::filesystem::path& path) {
  if (!has_npy_magic(file)) throw_malformed(path, "no .npy magic", "a file that starts with it");
  if (file.size() < kNpyLengthOffset) {
    throw_malformed(path, std::to_string(file.size()) + " bytes", "at least the format version");
  }
  const auto major = std::to_integer<unsigned>(file[kNpyVersionOffset]);
  const auto minor = std::to_integer<unsigned>(file[kNpyVersionOffset + 1]);
  if (major < 1 || major > 3 || minor != 0) {
    throw FileError(
        FileErrorReason::unsupported, path,
        {.found = ".npy format version " + std::to_string(major) + "." + std::to_string(minor),
         .expected = "version 1.0, 2.0 or 3.0",
         .advice = "Save the array again with numpy.save."});
  }
  const auto rest = file.subspan(kNpyLengthOffset);
  const std::size_t length_bytes = major == 1 ? sizeof(std::uint16_t) : sizeof(std::uint32_t);
  if (rest.size() < length_bytes) {
    throw_malformed(path, std::to_string(file.size()) + " bytes", "at least the header length");
  }
  const std::size_t length = major == 1 ? load_little_endian<std::uint16_t>(rest)
                                        : load_little_endian<std::uint32_t>(rest);
  const auto after_length = rest.subspan(length_bytes);
  if (length > kMaxHeaderBytes || length > after_length.size()) {
    throw_malformed(path, "a header length of " + std::to_string(length) + " bytes",
                    "at most " + std::to_string(kMaxHeaderBytes) + " and at most the " +
                        std::to_string(after_length.size()) + " bytes that follow the length");
  }
  return {.header = {reinterpret_cast<const char*>(after_length.data()), length},
          .data = after_length.subspan(length)};
}

StoredType parse_descr(const std::string& descr, const NpyOptions& options,
                       const std::filesystem::path& path) {
  if (descr == "<u2" && options.uint16_is_bfloat16) return StoredType::bfloat16;
  // NumPy itself writes a plain 2-byte void as '|V2', ml_dtypes a bfloat16 as '<V2'.
  if (descr == "|V2") return StoredType::bfloat16;
  const auto info = std::ranges::find_if(kStoredTypes, [&](const StoredTypeInfo& candidate) {
    return !candidate.npy_name.empty() && candidate.npy_name == descr;
  });
  if (info != kStoredTypes.end()) return info->type;

  FileProblem problem{.found = "elements of type " + quote_for_message(descr),
                      .expected = "little-endian numbers, such as '<f4', '<f2' or '<V2' (bfloat16)",
                      .advice = "Convert them: numpy.save(path, array.astype(numpy.float32))."};
  if (descr.starts_with('>')) {
    problem.found = "big-endian elements of type " + quote_for_message(descr);
    problem.advice = "Swap them: numpy.save(path, array.astype(array.dtype.newbyteorder('<'))).";
  } else if (descr == "<V1" || descr == "|V1") {
    problem.advice =
        "An 8-bit float is saved as 'V1' whatever its format. Convert it before it is saved: "
        "numpy.save(path, array.astype(numpy.float32)).";
  } else if (descr.find_first_of("USMmV") == 1) {
    problem.advice = "These are no numbers that can be converted: save an array of numbers.";
  }
  throw FileError(FileErrorReason::unsupported, path, problem);
}

}  // namespace

bool has_npy_magic(std::span<const std::byte> file) noexcept {
  return file.size() >= kNpyMagic.size() &&
         std::memcmp(file.data(), kNpyMagic.data(), kNpyMagic.size()) == 0;
}

TensorFileContents parse_npy(std::span<const std::byte> file, const std::filesystem::path& path,
                             const NpyOptions& options) {
  const auto [header_text, data] = split_file(file, path);
  ArrayHeader header = DictionaryParser(header_text, path).parse();
  const StoredType type = parse_descr(header.descr, options, path);
  if (header.fortran_order) {
    throw FileError(FileErrorReason::unsupported, path,
                    {.found = "an array in Fortran order (first index fastest)",
                     .expected = "C order (last index fastest)",
                     .advice = "Reorder it: numpy.save(path, numpy.ascontiguousarray(array))."});
  }
  const std::optional<std::uint64_t> bytes = checked_byte_count(header.shape, type);
  const std::string form = std::string(stored_name(type)) + " " + shape_text(header.shape);
  if (!bytes) throw_malformed(path, "an array of " + form, "a size in bytes that fits 63 bits");
  if (*bytes != data.size()) {
    throw_malformed(path, std::to_string(data.size()) + " bytes after the header",
                    std::to_string(*bytes) + " bytes, as the header says: one array of " + form);
  }
  TensorFileContents contents;
  contents.entries.push_back({.name = path.stem().string(),
                              .type = type,
                              .shape = std::move(header.shape),
                              .bytes = data});
  return contents;
}

}  // namespace openvc::io

// SPDX-License-Identifier: BSD-3-Clause
#include "io/tensor_file.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "io/file_error.hpp"
#include "io/safetensors.hpp"

namespace openvc::io {
namespace {

using namespace std::string_view_literals;

/// A file of another kind that users are likely to pass.
struct ForeignFormat {
  std::string_view magic;
  std::string_view description;
  std::string_view advice;
};

constexpr std::string_view kPickleAdvice =
    "This reader never unpickles, because a pickle can run any code. The command `open-vc-attn` "
    "of the Python package converts files whose names end in .pt or .pth; else load it with "
    "torch.load(.., weights_only=True) and save its tensors with safetensors.torch.save_file.";
constexpr std::string_view kZipMagic = "PK\x03\x04";

constexpr auto kForeignFormats = std::to_array<ForeignFormat>({
    {kZipMagic, "a ZIP archive, such as a PyTorch .pt file", kPickleAdvice},
    {"\x80\x02"sv, "a Python pickle, such as a PyTorch .pt file", kPickleAdvice},
    {"\x80\x03"sv, "a Python pickle", kPickleAdvice},
    {"\x80\x04"sv, "a Python pickle", kPickleAdvice},
    {"\x80\x05"sv, "a Python pickle", kPickleAdvice},
    {"version https://git-lfs"sv, "a Git LFS pointer instead of the file itself",
     "Fetch the content with `git lfs pull`."},
    {"GGUF"sv, "a GGUF file", "Convert it to safetensors."},
    {"{"sv, "JSON text, such as a safetensors index",
     "Open the safetensors files that the index names."},
});

// PyTorch files have the same magic.
constexpr ForeignFormat kNpzArchive = {
    kZipMagic, "a NumPy .npz archive",
    "Save each of its arrays as an .npy file with numpy.save, or all of them as one safetensors "
    "file with safetensors.numpy.save_file."};

[[noreturn]] void refuse_foreign(std::span<const std::byte> file,
                                 const std::filesystem::path& path) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  FileProblem problem{
      .found = file.empty() ? "an empty file"
                            : "an unknown format, starting " + quote_for_message(text.substr(0, 8)),
      .expected = "a safetensors or .npy file",
      .advice = "Check that the path is right and that the file was written completely."};
  const auto format = std::ranges::find_if(
      kForeignFormats, [text](const ForeignFormat& f) { return text.starts_with(f.magic); });
  if (format != kForeignFormats.end()) {
    const bool is_npz = format->magic == kZipMagic && path.extension() == ".npz";
    const ForeignFormat& known = is_npz ? kNpzArchive : *format;
    problem.found = known.description;
    problem.advice = known.advice;
  }
  throw FileError(FileErrorReason::unsupported, path, problem);
}

}  // namespace

TensorFileContents parse_tensor_file(std::span<const std::byte> file,
                                     const std::filesystem::path& path,
                                     const TensorFileOptions& options) {
  if (has_npy_magic(file)) return parse_npy(file, path, options.npy);
  // Before the other formats: the length of a safetensors header may look like their magic. One of
  // 640 bytes starts with 80 02, as a pickle does.
  if (looks_like_safetensors(file)) return parse_safetensors(file, path);
  refuse_foreign(file, path);
}

TensorFile::TensorFile(std::filesystem::path path, MappedFile file,
                       const TensorFileOptions& options)
    : path_(std::move(path)),
      file_(std::move(file)),
      contents_(parse_tensor_file(file_.bytes(), path_, options)) {}

TensorFile TensorFile::open(const std::filesystem::path& path, const TensorFileOptions& options) {
  return TensorFile(path, MappedFile(path), options);
}

const TensorEntry* TensorFile::find(std::string_view name) const noexcept {
  const auto entry = std::ranges::find(contents_.entries, name, &TensorEntry::name);
  return entry == contents_.entries.end() ? nullptr : &*entry;
}

const TensorEntry& TensorFile::at(std::string_view name) const {
  if (const TensorEntry* entry = find(name)) return *entry;
  constexpr std::size_t kMaxListedNames = 12;
  std::string names;
  for (const TensorEntry& entry : entries().first(std::min(entries().size(), kMaxListedNames))) {
    names += (names.empty() ? "" : ", ") + quote_for_message(entry.name);
  }
  if (entries().size() > kMaxListedNames) names += ", ...";
  throw FileError(
      FileErrorReason::no_such_tensor, path_,
      {.found = "no tensor " + quote_for_message(name),
       .expected = names.empty() ? "any tensor, but the file holds none" : "one of " + names,
       .advice = "Name one of the tensors in the file, or give another file."});
}

}  // namespace openvc::io

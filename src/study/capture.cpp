// SPDX-License-Identifier: BSD-3-Clause
#include "study/capture.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "io/file_error.hpp"
#include "io/tensor_file.hpp"
#include "openvc/status.hpp"

namespace openvc::study {
namespace {

struct Found {
  const io::TensorFile* file;
  const io::TensorEntry* entry;
};

bool is_npy(const std::filesystem::path& path) { return path.extension() == ".npy"; }

/// The tensor of that name in the first file that has it.
Found find_tensor(const std::vector<io::TensorFile>& files, const std::string& name) {
  for (const io::TensorFile& file : files) {
    if (const io::TensorEntry* entry = file.find(name)) return {&file, entry};
  }
  if (std::ranges::all_of(files, [](const io::TensorFile& file) { return is_npy(file.path()); })) {
    throw Error(ErrorCode::invalid_value,
                "found " + std::to_string(files.size()) + " .npy file" +
                    (files.size() == 1 ? "" : "s") + " (" + files.front().path().string() +
                    (files.size() == 1 ? "" : ", ..") +
                    "); expected three, in the order q, k, v. Such a file holds one tensor: give "
                    "one for each of Q, K and V.");
  }
  // The last file's message lists the names that it has.
  return {&files.back(), &files.back().at(name)};
}

std::vector<Found> find_all(const CaptureRequest& request,
                            const std::vector<io::TensorFile>& files) {
  constexpr std::size_t kTensors = 3;
  std::vector<Found> found;
  bool all_npy = files.size() == kTensors;
  for (const io::TensorFile& file : files) all_npy = all_npy && is_npy(file.path());
  if (all_npy) {
    // Such a file holds one tensor, which has no name of its own.
    for (const io::TensorFile& file : files) found.push_back({&file, &file.entries().front()});
    return found;
  }
  for (const std::string* name : {&request.q, &request.k, &request.v}) {
    found.push_back(find_tensor(files, request.prefix + *name));
  }
  return found;
}

CapturedTensor load_tensor(const Found& found, StoredLayout layout) {
  const io::TensorEntry& entry = *found.entry;
  const auto type = io::attention_element_type(entry.type);
  if (!type) {
    throw io::FileError(
        io::FileErrorReason::unsupported, found.file->path(),
        {.found = "tensor " + io::quote_for_message(entry.name) + " of type " +
                  std::string(io::stored_name(entry.type)),
         .expected = "bfloat16, float16 or float32",
         .advice = is_npy(found.file->path()) && entry.type == io::StoredType::uint16
                       ? "If its numbers are the bits of bfloat16, say so with "
                         "--uint16-as-bfloat16; else convert the tensor."
                       : "Convert the tensor to one of these types."});
  }
  const std::size_t rank = entry.shape.size();
  if (rank != 3 && rank != 4) {
    throw io::FileError(io::FileErrorReason::unsupported, found.file->path(),
                        {.found = "tensor " + io::quote_for_message(entry.name) + " of shape " +
                                  io::shape_text(entry.shape),
                         .expected = "[S, H, D] or [B, S, H, D]",
                         .advice = "Reshape the tensor, or name another one."});
  }
  CapturedTensor tensor;
  tensor.type = *type;
  tensor.rank = rank;
  tensor.bytes.assign(entry.bytes.begin(), entry.bytes.end());
  for (std::size_t axis = 0; axis < 4; ++axis) {
    tensor.shape[axis] = axis + rank < 4 ? 1 : entry.shape[axis + rank - 4];
  }
  tensor.strides = contiguous_strides(tensor.shape);
  if (layout == StoredLayout::head_sequence) {
    std::swap(tensor.shape[kSequence], tensor.shape[kHead]);
    std::swap(tensor.strides[kSequence], tensor.strides[kHead]);
  }
  return tensor;
}

std::optional<std::string> metadata_value(const io::Metadata& metadata, const std::string& key) {
  const auto entry = metadata.find(key);
  if (entry == metadata.end()) return std::nullopt;
  return entry->second;
}

std::optional<float> stored_softmax_scale(const io::TensorFile& file) {
  const auto text = metadata_value(file.metadata(), "softmax_scale");
  if (!text) return std::nullopt;
  float scale = 0.0f;
  const char* end = text->data() + text->size();
  const auto [rest, failure] = std::from_chars(text->data(), end, scale);
  if (failure != std::errc() || rest != end || !std::isfinite(scale) || !(scale > 0.0f)) {
    throw io::FileError(io::FileErrorReason::malformed, file.path(),
                        {.found = "the softmax_scale " + io::quote_for_message(*text),
                         .expected = "a positive number",
                         .advice = "Correct the metadata, or give the scale explicitly."});
  }
  return scale;
}

std::optional<bool> stored_flag(const io::TensorFile& file, const std::string& key) {
  const auto text = metadata_value(file.metadata(), key);
  if (!text) return std::nullopt;
  if (*text == "true" || *text == "false") return *text == "true";
  throw io::FileError(io::FileErrorReason::malformed, file.path(),
                      {.found = "the metadata " + key + " " + io::quote_for_message(*text),
                       .expected = "true or false",
                       .advice = "Correct the metadata."});
}

StoredLayout stored_layout(const io::TensorFile& file) {
  const auto text = metadata_value(file.metadata(), "layout");
  if (!text || *text == "SHD" || *text == "BSHD") return StoredLayout::sequence_head;
  if (*text == "HSD" || *text == "BHSD") return StoredLayout::head_sequence;
  throw io::FileError(io::FileErrorReason::unsupported, file.path(),
                      {.found = "the layout " + io::quote_for_message(*text),
                       .expected = "SHD, BSHD, HSD or BHSD",
                       .advice = "Correct the metadata, or give the layout explicitly."});
}

}  // namespace

Capture load_capture(const CaptureRequest& request) {
  if (request.files.empty()) throw Error(ErrorCode::invalid_value, "no input file was given");
  std::vector<io::TensorFile> files;
  files.reserve(request.files.size());
  for (const std::filesystem::path& path : request.files) {
    files.push_back(
        io::TensorFile::open(path, {.npy = {.uint16_is_bfloat16 = request.uint16_is_bfloat16}}));
  }
  const std::vector<Found> found = find_all(request, files);
  Capture capture;
  capture.metadata = found.front().file->metadata();
  capture.layout = request.layout ? *request.layout : stored_layout(*found.front().file);
  capture.softmax_scale = stored_softmax_scale(*found.front().file);
  capture.causal = stored_flag(*found.front().file, "causal");
  capture.masked = stored_flag(*found.front().file, "masked").value_or(false);
  capture.q = load_tensor(found[0], capture.layout);
  capture.k = load_tensor(found[1], capture.layout);
  capture.v = load_tensor(found[2], capture.layout);
  return capture;
}

}  // namespace openvc::study

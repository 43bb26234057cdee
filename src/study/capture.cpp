// SPDX-License-Identifier: BSD-3-Clause
#include "study/capture.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "io/file_error.hpp"
#include "io/tensor_file.hpp"
#include "openvc/status.hpp"
#include "study/stored_call.hpp"

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
                files.front().path().string() + (files.size() == 1 ? "" : ", ..") + ": found " +
                    std::to_string(files.size()) + " .npy file" + (files.size() == 1 ? "" : "s") +
                    "; expected three, in the order q, k, v. Such a file holds one tensor: give "
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

std::string conversion_advice(const io::TensorFile& file, const io::TensorEntry& entry) {
  if (!is_npy(file.path())) {
    return "Convert it before it is saved: x.to(torch.bfloat16), or name another tensor.";
  }
  const std::string conversion = "numpy.save(path, array.astype(numpy.float32)).";
  return entry.type == io::StoredType::uint16
             ? "If its numbers are the bits of bfloat16, say so with --uint16-as-bfloat16; else "
               "convert them: " +
                   conversion
             : "Convert it: " + conversion;
}

CapturedTensor load_tensor(const Found& found, StoredLayout layout) {
  const io::TensorEntry& entry = *found.entry;
  const auto type = io::attention_element_type(entry.type);
  if (!type) {
    throw io::FileError(io::FileErrorReason::unsupported, found.file->path(),
                        {.found = "tensor " + io::quote_for_message(entry.name) + " of type " +
                                  io::type_text(entry),
                         .expected = "bfloat16, float16 or float32",
                         .advice = conversion_advice(*found.file, entry)});
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

}  // namespace

Capture load_capture(const CaptureRequest& request) {
  if (request.files.empty()) {
    throw Error(ErrorCode::invalid_value,
                "files: found none; expected one to three. Give the files of q, k and v.");
  }
  std::vector<io::TensorFile> files;
  files.reserve(request.files.size());
  for (const std::filesystem::path& path : request.files) {
    files.push_back(
        io::TensorFile::open(path, {.npy = {.uint16_is_bfloat16 = request.uint16_is_bfloat16}}));
  }
  const std::vector<Found> found = find_all(request, files);
  Capture capture;
  for (const io::TensorFile& file : files) {
    // The first file that has a key keeps it: what the others say may only be free text.
    capture.metadata.insert(file.metadata().begin(), file.metadata().end());
  }
  const StoredCall call = stored_call(files, request);
  capture.layout = request.layout.value_or(call.layout.value_or(StoredLayout::sequence_head));
  capture.softmax_scale = call.softmax_scale;
  capture.causal = call.causal;
  capture.masked = call.masked.value_or(false);
  capture.q = load_tensor(found[0], capture.layout);
  capture.k = load_tensor(found[1], capture.layout);
  capture.v = load_tensor(found[2], capture.layout);
  return capture;
}

}  // namespace openvc::study

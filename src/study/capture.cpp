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

[[noreturn]] void refuse_npy_count(const std::vector<io::TensorFile>& files) {
  throw Error(ErrorCode::invalid_value,
              files.front().path().string() + (files.size() == 1 ? "" : ", ..") + ": found " +
                  std::to_string(files.size()) + " .npy file" + (files.size() == 1 ? "" : "s") +
                  "; expected three, in the order q, k, v. Such a file holds one tensor: give "
                  "one for each of Q, K and V.");
}

/// The tensor of that name in the one file that has it.
Found find_tensor(const std::vector<io::TensorFile>& files, const std::string& name) {
  Found found{nullptr, nullptr};
  const bool all_npy =
      std::ranges::all_of(files, [](const io::TensorFile& file) { return is_npy(file.path()); });
  for (const io::TensorFile& file : files) {
    const io::TensorEntry* entry = file.find(name);
    if (entry == nullptr) continue;
    if (found.file != nullptr && all_npy) refuse_npy_count(files);
    if (found.file != nullptr) {
      throw Error(ErrorCode::invalid_value,
                  found.file->path().string() + ", " + file.path().string() + ": found tensor " +
                      io::quote_for_message(name) +
                      " in both; expected it in one of the files. Leave out the file that is not "
                      "meant, or name another tensor with --q-name, --k-name or --v-name.");
    }
    found = {&file, entry};
  }
  if (found.file != nullptr) return found;
  if (all_npy) refuse_npy_count(files);
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
    const CaptureRequest unnamed;
    if (!request.prefix.empty() || request.q != unnamed.q || request.k != unnamed.k ||
        request.v != unnamed.v) {
      throw Error(
          ErrorCode::invalid_value,
          files.front().path().string() +
              ", ..: found three .npy files, whose tensors have no names; expected no names "
              "to look for. Leave out --tensors, --q-name, --k-name and --v-name, and give "
              "the files in the order q, k, v.");
    }
    for (const io::TensorFile& file : files) found.push_back({&file, &file.entries().front()});
    return found;
  }
  for (const std::string* name : {&request.q, &request.k, &request.v}) {
    found.push_back(find_tensor(files, request.prefix + *name));
  }
  return found;
}

/// Every file must be there for something: a tensor, or what it says about the call.
void require_use_of_each(const std::vector<io::TensorFile>& files, const std::vector<Found>& found,
                         const CaptureRequest& request) {
  for (const io::TensorFile& file : files) {
    if (std::ranges::any_of(found, [&](const Found& x) { return x.file == &file; })) continue;
    if (says_something(file, request)) continue;
    throw io::FileError(
        io::FileErrorReason::no_such_tensor, file.path(),
        {.found = "none of the tensors, which the other files hold, and nothing about the call",
         .expected = "a file that holds a part of the input",
         .advice = "Leave it out."});
  }
}

/// The files of a request, opened as it says.
std::vector<io::TensorFile> open_files(const CaptureRequest& request) {
  std::vector<io::TensorFile> files;
  files.reserve(request.files.size());
  for (const std::filesystem::path& path : request.files) {
    files.push_back(
        io::TensorFile::open(path, {.npy = {.uint16_is_bfloat16 = request.uint16_is_bfloat16}}));
  }
  const auto is_read_otherwise = [](const io::TensorFile& file) {
    const io::TensorFile plain = io::TensorFile::open(file.path());
    return !std::ranges::equal(file.entries(), plain.entries(), {}, &io::TensorEntry::type,
                               &io::TensorEntry::type);
  };
  if (request.uint16_is_bfloat16 && std::ranges::none_of(files, is_read_otherwise)) {
    throw Error(ErrorCode::invalid_value,
                "--uint16-as-bfloat16: found no .npy file of uint16 among " +
                    files.front().path().string() + (files.size() == 1 ? "" : ", ..") +
                    "; expected one, the only kind of file whose bfloat16 has no name. Leave the "
                    "flag out.");
  }
  return files;
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
  const std::vector<io::TensorFile> files = open_files(request);
  const std::vector<Found> found = find_all(request, files);
  require_use_of_each(files, found, request);
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

// SPDX-License-Identifier: BSD-3-Clause
#include "study/capture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "io/file_error.hpp"
#include "io/safetensors.hpp"
#include "openvc/status.hpp"
#include "support/npy_writer.hpp"

namespace openvc::study {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CaptureTest : public testing::Test {
 protected:
  CaptureTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / (std::string("capture_") + test->name());
    std::filesystem::create_directories(folder_);
  }
  ~CaptureTest() override { std::filesystem::remove_all(folder_); }

  /// A tensor whose elements count up from `first`.
  struct Stored {
    std::vector<float> elements;
    io::TensorEntry entry;
  };
  static Stored stored(const std::string& name, std::vector<std::int64_t> shape, float first) {
    std::size_t count = 1;
    for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
    Stored s;
    for (std::size_t i = 0; i < count; ++i) s.elements.push_back(first + static_cast<float>(i));
    s.entry = {.name = name,
               .type = io::StoredType::float32,
               .shape = std::move(shape),
               .bytes = std::as_bytes(std::span(s.elements))};
    return s;
  }

  std::filesystem::path write(const std::string& prefix, const std::vector<std::int64_t>& shape,
                              const io::Metadata& metadata = {}) {
    const Stored q = stored(prefix + "q", shape, 0.0f);
    const Stored k = stored(prefix + "k", shape, 1'000.0f);
    const Stored v = stored(prefix + "v", shape, 2'000.0f);
    const std::filesystem::path path = folder_ / "file.safetensors";
    io::write_safetensors(path, std::vector{q.entry, k.entry, v.entry}, metadata);
    return path;
  }

  template <class Element>
  std::filesystem::path write_with(const std::string& name, io::StoredType type,
                                   const std::vector<Element>& elements,
                                   const std::vector<std::int64_t>& shape,
                                   const io::Metadata& metadata = {});

  std::filesystem::path folder_;
};

float element(const TensorView& view, std::int64_t b, std::int64_t s, std::int64_t h) {
  return static_cast<const float*>(view.data)[view.offset(b, s, h)];
}

std::string refusal(const CaptureRequest& request) {
  try {
    static_cast<void>(load_capture(request));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(CaptureTest, TokensHeadsChannels) {
  const Capture capture = load_capture({.files = {write("", {3, 2, 4})}});
  EXPECT_THAT(capture.q.shape, ElementsAre(1, 3, 2, 4));
  EXPECT_EQ(capture.q.rank, 3u);
  EXPECT_EQ(element(capture.q.view(), 0, 1, 0), 8.0f);
  EXPECT_EQ(element(capture.k.view(), 0, 0, 0), 1'000.0f);
  EXPECT_EQ(element(capture.v.view(), 0, 2, 1), 2'020.0f);
  EXPECT_FALSE(capture.softmax_scale.has_value());
  EXPECT_FALSE(capture.causal.has_value());
}

TEST_F(CaptureTest, BatchAndHeadsFirst) {
  const Capture capture = load_capture({.files = {write("", {2, 3, 5, 4}, {{"layout", "BHSD"}})}});
  EXPECT_THAT(capture.q.shape, ElementsAre(2, 5, 3, 4));
  EXPECT_EQ(element(capture.q.view(), 1, 2, 1), 60.0f + 20.0f + 8.0f);
}

TEST_F(CaptureTest, AnExplicitLayoutWins) {
  const Capture capture = load_capture({.files = {write("", {3, 5, 4}, {{"layout", "SHD"}})},
                                        .layout = StoredLayout::head_sequence});
  EXPECT_THAT(capture.q.shape, ElementsAre(1, 5, 3, 4));
}

TEST_F(CaptureTest, MetadataOfTheCall) {
  const Capture capture = load_capture(
      {.files = {write("", {3, 2, 4}, {{"softmax_scale", "0.25"}, {"causal", "true"}})}});
  EXPECT_EQ(capture.softmax_scale, 0.25f);
  EXPECT_EQ(capture.causal, true);
  EXPECT_FALSE(capture.masked);
  EXPECT_TRUE(load_capture({.files = {write("", {3, 2, 4}, {{"masked", "true"}})}}).masked);
}

TEST_F(CaptureTest, DamagedMetadataIsRefused) {
  for (const char* scale : {"", "0", "-1", "nan", "inf", "0.1x", "1e999"}) {
    EXPECT_THAT(refusal({.files = {write("", {3, 2, 4}, {{"softmax_scale", scale}})}}),
                HasSubstr("softmax_scale"))
        << scale;
  }
  EXPECT_THAT(refusal({.files = {write("", {3, 2, 4}, {{"causal", "maybe"}})}}),
              HasSubstr("true or false"));
  EXPECT_THAT(refusal({.files = {write("", {3, 2, 4}, {{"masked", "some"}})}}),
              HasSubstr("masked = 'some'"));
  EXPECT_THAT(refusal({.files = {write("", {3, 2, 4}, {{"layout", "DSH"}})}}),
              HasSubstr("SHD, BSHD, HSD or BHSD"));
}

/// q, k and v beside another tensor of `Element`, which the file calls `name`.
template <class Element>
std::filesystem::path CaptureTest::write_with(const std::string& name, io::StoredType type,
                                              const std::vector<Element>& elements,
                                              const std::vector<std::int64_t>& shape,
                                              const io::Metadata& metadata) {
  const Stored x = stored("q", {3, 2, 4}, 0.0f);
  std::vector<io::TensorEntry> entries(4, x.entry);
  entries[1].name = "k";
  entries[2].name = "v";
  entries[3] = {
      .name = name, .type = type, .shape = shape, .bytes = std::as_bytes(std::span(elements))};
  const std::filesystem::path path = folder_ / "file.safetensors";
  io::write_safetensors(path, entries, metadata);
  return path;
}

TEST_F(CaptureTest, TensorsOfOneNumberSayWhatMetadataSay) {
  const auto scale_of = [](const std::filesystem::path& path) {
    return load_capture({.files = {path}}).softmax_scale;
  };
  using io::StoredType;
  const std::string name = "softmax_scale";
  EXPECT_EQ(scale_of(write_with<float>(name, StoredType::float32, {0.1f}, {})), 0.1f);
  EXPECT_EQ(scale_of(write_with<double>(name, StoredType::float64, {0.1}, {1})), 0.1f);
  EXPECT_EQ(scale_of(write_with<std::int64_t>(name, StoredType::int64, {2}, {1, 1})), 2.0f);
  EXPECT_EQ(scale_of(write_with<std::uint16_t>(name, StoredType::bfloat16, {0x3f00}, {})), 0.5f);
  EXPECT_EQ(scale_of(write_with<std::uint16_t>(name, StoredType::float16, {0x3800}, {})), 0.5f);
  const auto causal_of = [](const std::filesystem::path& path) {
    return load_capture({.files = {path}}).causal;
  };
  for (const int number : {0, 1}) {
    const auto value = static_cast<std::uint8_t>(number);
    EXPECT_EQ(causal_of(write_with<std::uint8_t>("causal", StoredType::boolean, {value}, {})),
              value == 1);
    EXPECT_EQ(causal_of(write_with<std::uint8_t>("causal", StoredType::uint8, {value}, {})),
              value == 1);
    EXPECT_EQ(causal_of(write_with<float>("causal", StoredType::float32,
                                          {static_cast<float>(value)}, {})),
              value == 1);
  }
  EXPECT_TRUE(
      load_capture({.files = {write_with<std::int32_t>("masked", StoredType::int32, {1}, {})}})
          .masked);
}

TEST_F(CaptureTest, ScalesThatAttentionDoesNotTakeAreRefused) {
  for (const char* scale : {"0", "-0.1", "nan", "inf", "1e-50", "1e-40", "1e38", "1e50", "1e999",
                            "0x1p-3", "", "0.1 "}) {
    EXPECT_THAT(refusal({.files = {write("", {3, 2, 4}, {{"softmax_scale", scale}})}}),
                HasSubstr("expected a number from 2^-126"))
        << scale;
  }
}

TEST_F(CaptureTest, TensorsThatSayNothingClearAreRefused) {
  using io::StoredType;
  const auto refused = [&](const std::filesystem::path& path) {
    return refusal({.files = {path}});
  };
  EXPECT_THAT(refused(write_with<float>("softmax_scale", StoredType::float32, {1, 2}, {2})),
              HasSubstr("softmax_scale = 'float32 [2]'; expected a tensor of one number"));
  EXPECT_THAT(refused(write_with<float>("softmax_scale", StoredType::float32, {}, {0})),
              HasSubstr("expected a tensor of one number"));
  EXPECT_THAT(refused(write_with<float>("softmax_scale", StoredType::float32, {-1}, {})),
              HasSubstr("softmax_scale = '-1'; expected a number from 2^-126"));
  EXPECT_THAT(refused(write_with<std::uint8_t>("causal", StoredType::uint8, {2}, {})),
              HasSubstr("causal = '2'; expected true or false"));
  EXPECT_THAT(refused(write_with<float>("softmax_scale", StoredType::float32, {0.5f}, {},
                                        {{"softmax_scale", "0.25"}})),
              HasSubstr("softmax_scale = '0.5'; expected the '0.25' that was read before it"));
}

TEST_F(CaptureTest, ParametersUnderOtherNamesAreRefused) {
  for (const char* key : {"scale", "is_causal", "attn_mask", "dropout_p", "window_size"}) {
    EXPECT_THAT(refusal({.files = {write("", {3, 2, 4}, {{key, "1"}})}}),
                HasSubstr("the parameter '" + std::string(key) + "' of attention"));
    EXPECT_THAT(
        refusal({.files = {write_with<float>(key, io::StoredType::float32, {1, 2, 3}, {3})}}),
        HasSubstr("the parameter '" + std::string(key) + "' of attention"));
    EXPECT_THAT(refusal({.files = {write("b.", {3, 2, 4}, {{"b." + std::string(key), "1"}})},
                         .prefix = "b."}),
                HasSubstr("of attention"));
    // It belongs to another set of tensors.
    EXPECT_EQ(refusal({.files = {write("b.", {3, 2, 4}, {{"c." + std::string(key), "1"}})},
                       .prefix = "b."}),
              "");
  }
}

TEST_F(CaptureTest, WhatThePrefixMarksCountsMore) {
  const auto path = write("b.", {3, 2, 4}, {{"softmax_scale", "0.5"}, {"b.softmax_scale", "0.25"}});
  EXPECT_EQ(load_capture({.files = {path}, .prefix = "b."}).softmax_scale, 0.25f);
}

TEST_F(CaptureTest, PrefixAndNames) {
  const auto path = write("block.3.", {3, 2, 4});
  EXPECT_EQ(load_capture({.files = {path}, .prefix = "block.3."}).q.shape[1], 3);
  EXPECT_EQ(
      element(load_capture({.files = {path}, .prefix = "block.3.", .q = "v"}).q.view(), 0, 0, 0),
      2'000.0f);
  EXPECT_THAT(refusal({.files = {path}, .prefix = "block.4."}),
              testing::AllOf(HasSubstr("'block.4.q'"), HasSubstr("'block.3.q'")));
}

TEST_F(CaptureTest, ThreeNpyFilesInOrder) {
  std::vector<std::filesystem::path> paths;
  float first = 0.0f;
  for (const char* name : {"a.npy", "b.npy", "c.npy"}) {
    paths.push_back(folder_ / name);
    io::testing::write_npy(paths.back(), stored("x", {3, 2, 4}, first).entry);
    first += 100.0f;
  }
  const Capture capture = load_capture({.files = paths});
  EXPECT_EQ(element(capture.q.view(), 0, 0, 0), 0.0f);
  EXPECT_EQ(element(capture.k.view(), 0, 0, 0), 100.0f);
  EXPECT_EQ(element(capture.v.view(), 0, 0, 0), 200.0f);
}

TEST_F(CaptureTest, ThreeNpyFilesHaveNoNamesToAskFor) {
  const std::filesystem::path path = folder_ / "q.npy";
  io::testing::write_npy(path, stored("x", {3, 2, 4}, 0.0f).entry);
  const std::vector<std::filesystem::path> three(3, path);
  for (const CaptureRequest& request :
       {CaptureRequest{.files = three, .prefix = "a."}, CaptureRequest{.files = three, .q = "x"},
        CaptureRequest{.files = three, .k = "x"}, CaptureRequest{.files = three, .v = "x"}}) {
    EXPECT_THAT(refusal(request), HasSubstr("whose tensors have no names"));
  }
}

TEST_F(CaptureTest, ATensorThatTwoFilesHoldIsRefused) {
  const auto file = [&](const std::string& file_name, const std::vector<std::string>& names) {
    const Stored x = stored("q", {3, 2, 4}, 0.0f);
    std::vector<io::TensorEntry> entries(names.size(), x.entry);
    for (std::size_t i = 0; i < names.size(); ++i) entries[i].name = names[i];
    io::write_safetensors(folder_ / file_name, entries);
    return folder_ / file_name;
  };
  const auto all = file("all.safetensors", {"q", "k", "v"});
  const auto other = file("other.safetensors", {"q", "k", "v"});
  const auto query = file("query.safetensors", {"q"});
  const auto rest = file("rest.safetensors", {"k", "v", "x"});
  const auto value = file("value.safetensors", {"v"});
  using Files = std::vector<std::filesystem::path>;
  for (const Files& files :
       {Files{all, other}, Files{all, query}, Files{query, all}, Files{all, all}}) {
    EXPECT_THAT(refusal({.files = files}),
                testing::AllOf(HasSubstr(files.front().filename().string()), HasSubstr("in both")));
  }
  EXPECT_THAT(refusal({.files = {query, rest, value}}),
              testing::AllOf(HasSubstr("rest.safetensors, "), HasSubstr("value.safetensors: found "
                                                                        "tensor 'v' in both")));
  EXPECT_EQ(load_capture({.files = {query, rest}}).v.shape[1], 3);
  EXPECT_EQ(load_capture({.files = {query, rest}, .v = "x"}).v.shape[1], 3);
}

TEST_F(CaptureTest, AFileThatIsOfNoUseIsRefused) {
  const auto file = [&](const std::string& name, const io::Metadata& metadata) {
    const Stored x = stored("other", {3, 2, 4}, 0.0f);
    io::write_safetensors(folder_ / name, std::span(&x.entry, 1), metadata);
    return folder_ / name;
  };
  const auto all = write("", {3, 2, 4});
  EXPECT_THAT(refusal({.files = {all, file("b", {{"model", "m"}})}}),
              testing::AllOf(HasSubstr("/b: found none"), HasSubstr("Leave it out")));
  EXPECT_EQ(load_capture({.files = {all, file("c", {{"softmax_scale", "0.5"}})}}).softmax_scale,
            0.5f);
}

TEST_F(CaptureTest, FewerNpyFilesAreRefused) {
  const std::filesystem::path path = folder_ / "q.npy";
  io::testing::write_npy(path, stored("x", {3, 2, 4}, 0.0f).entry);
  const std::filesystem::path second = folder_ / "k.npy";
  io::testing::write_npy(second, stored("x", {3, 2, 4}, 0.0f).entry);
  EXPECT_THAT(refusal({.files = {path, second}}),
              testing::AllOf(HasSubstr("found 2 .npy files"), HasSubstr("expected three")));
  // By its name, one file may serve all three.
  EXPECT_EQ(load_capture({.files = {path}, .k = "q", .v = "q"}).v.shape[1], 3);
}

TEST_F(CaptureTest, Uint16ArraysNameTheirOption) {
  const std::vector<std::uint16_t> bits(8);
  const std::filesystem::path path = folder_ / "bits.npy";
  io::testing::write_npy(path, {.name = "x",
                                .type = io::StoredType::uint16,
                                .shape = {1, 2, 4},
                                .bytes = std::as_bytes(std::span(bits))});
  EXPECT_THAT(refusal({.files = {path, path, path}}), HasSubstr("--uint16-as-bfloat16"));
  const CaptureRequest read{.files = {path, path, path}, .uint16_is_bfloat16 = true};
  EXPECT_EQ(load_capture(read).q.type, ElementType::bfloat16);
}

TEST_F(CaptureTest, Uint16AsBfloat16IsRefusedWhereNothingIsUint16) {
  const std::filesystem::path path = folder_ / "floats.npy";
  io::testing::write_npy(path, stored("x", {3, 2, 4}, 0.0f).entry);
  using Files = std::vector<std::filesystem::path>;
  for (const Files& files : {Files{write("", {3, 2, 4})}, Files{path, path, path}}) {
    EXPECT_THAT(refusal({.files = files, .uint16_is_bfloat16 = true}),
                testing::AllOf(HasSubstr("--uint16-as-bfloat16: found no .npy file of uint16"),
                               HasSubstr(files.front().filename().string())));
  }
}

TEST_F(CaptureTest, OtherRanksAndTypesAreRefused) {
  EXPECT_THAT(refusal({.files = {write("", {3, 4})}}), HasSubstr("[S, H, D] or [B, S, H, D]"));
  const std::vector<double> elements(8);
  std::vector<io::TensorEntry> entries;
  for (const char* name : {"q", "k", "v"}) {
    entries.push_back({.name = name,
                       .type = io::StoredType::float64,
                       .shape = {1, 2, 4},
                       .bytes = std::as_bytes(std::span(elements))});
  }
  io::write_safetensors(folder_ / "wide.safetensors", entries);
  EXPECT_THAT(refusal({.files = {folder_ / "wide.safetensors"}}),
              testing::AllOf(HasSubstr("float64"), HasSubstr("Convert")));
}

TEST_F(CaptureTest, MissingFilesAreRefused) {
  EXPECT_THAT(refusal({.files = {folder_ / "none"}}), HasSubstr("none"));
  EXPECT_NE(refusal({}), "");
}

}  // namespace
}  // namespace openvc::study

// SPDX-License-Identifier: BSD-3-Clause
#include "cute/oracle/oracle.hpp"

#include <cstdint>
#include <stdexcept>

// Shared memory does not exist here: pointers to it are its addresses.
#define CUTE_NVVM_GET_SMEM_POINTER_ACTIVATED 1
static std::uint32_t __nvvm_get_smem_pointer(const void* pointer) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(pointer));
}
#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED  // N = 136

#include <cute/atom/copy_traits_sm100.hpp>
#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/copy_traits_sm90_tma_swizzle.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm100.hpp>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/atom/mma_traits_sm90_gmma_ext.hpp>
#include <cute/tensor.hpp>

namespace openvc::cute_oracle {
namespace {

using namespace cute;
using Code = float_e4m3_t;

using ScoreProduct = SM90_64x128x32_F16E4M3E4M3_SS_TN<>;
using ValueProduct = SM90_64x136x32_F32E4M3E4M3_RS_TN<>;

using KMajor = integral_constant<UMMA::Major, UMMA::Major::K>;
using Positive = integral_constant<UMMA::ScaleIn, UMMA::ScaleIn::One>;
constexpr int kBlockRows = 128;  // M of tcgen05.mma
template <class Sum, int kColumns>
using BlockTraits = MMA_Traits<SM100_MMA_F8F6F4_SS, Code, Code, Sum, C<kBlockRows>, C<kColumns>,
                               KMajor, KMajor, Positive, Positive>;
template <class Sum, int kColumns>
using TensorTraits = MMA_Traits<
    SM100_MMA_F8F6F4_TS<Code, Code, Sum, kBlockRows, kColumns, UMMA::Major::K, UMMA::Major::K,
                        UMMA::ScaleIn::One, UMMA::ScaleIn::One, UMMA::Saturate::False>>;

/// Of a layout from (thread, value) to the place of an element, columns of `rows` one by one.
template <class Layout>
Fragment fragment(const Layout& layout, int rows) {
  Fragment result(size<0>(layout));
  for (int thread = 0; thread < size<0>(layout); ++thread) {
    for (int value = 0; value < size<1>(layout); ++value) {
      const int place = layout(thread, value);
      result[thread].push_back({place % rows, place / rows});
    }
  }
  return result;
}

template <class Operation>
Fragments fragments() {
  using Traits = MMA_Traits<Operation>;
  constexpr typename Traits::Shape_MNK kShape;
  constexpr int kRows = get<0>(kShape);
  return {.a = fragment(typename Traits::ALayout{}, kRows),
          .b = fragment(typename Traits::BLayout{}, get<1>(kShape)),
          .sums = fragment(typename Traits::CLayout{}, kRows)};
}

template <int kRows, int kWidth>
auto tile_layout() {
  using Atom =
      conditional_t<kWidth == 128, GMMA::Layout_K_SW128_Atom<Code>, GMMA::Layout_K_SW32_Atom<Code>>;
  return tile_to_shape(Atom{}, Shape<Int<kRows>, Int<kWidth>>{});
}

template <int kRows, int kWidth>
Tile tile_of() {
  const auto layout = tile_layout<kRows, kWidth>();
  Tile result;
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kWidth; ++column) {
      result.offsets.push_back(static_cast<std::uint32_t>(layout(row, column)));
    }
  }
  switch (detail::get_tma_swizzle_bits(layout)) {
    case TMA::SmemSwizzleBits::B128:
      result.swizzle_span = 128;
      break;
    case TMA::SmemSwizzleBits::B64:
      result.swizzle_span = 64;
      break;
    case TMA::SmemSwizzleBits::B32:
      result.swizzle_span = 32;
      break;
    default:
      result.swizzle_span = 0;
  }
  return result;
}

/// Of a fragment of descriptors: (1, blocks of rows, k-steps).
template <class Tensor>
std::vector<std::vector<Descriptor>> descriptors(const Tensor& tensor) {
  std::vector<std::vector<Descriptor>> result(size<1>(tensor));
  for (int block = 0; block < size<1>(tensor); ++block) {
    for (int step = 0; step < size<2>(tensor); ++step) {
      const auto descriptor = tensor(_0{}, block, step);
      const std::uint64_t bits = descriptor.desc_;
      constexpr bool kIsHopper = is_same_v<decltype(descriptor), const GmmaDescriptor>;
      result[block].push_back({bits, kIsHopper ? gmma_fields(bits) : umma_fields(bits)});
    }
  }
  return result;
}

template <int kRows, int kWidth>
auto shared_tile(std::uint32_t address) {
  auto* const start = reinterpret_cast<Code*>(std::uintptr_t{address});
  return make_tensor(make_smem_ptr(start), tile_layout<kRows, kWidth>());
}

template <class Operation, int kRows, int kWidth>
std::vector<std::vector<Descriptor>> descriptors_of_a(std::uint32_t address) {
  const auto product = make_tiled_mma(MMA_Atom<Operation>{}).get_slice(0);
  return descriptors(
      product.make_fragment_A(product.partition_A(shared_tile<kRows, kWidth>(address))));
}

template <class Operation, int kRows, int kWidth>
std::vector<std::vector<Descriptor>> descriptors_of_b(std::uint32_t address) {
  const auto product = make_tiled_mma(MMA_Atom<Operation>{}).get_slice(0);
  return descriptors(
      product.make_fragment_B(product.partition_B(shared_tile<kRows, kWidth>(address))));
}

/// Calls use() with the traits of a product of `Traits`.
template <template <class, int> class Traits, class Use>
auto with_traits(BlockProduct product, const Use& use) {
  const bool is_wide = product.columns == 144;
  if (!is_wide && product.columns != 128) throw std::invalid_argument("N that no kernel has");
  if (product.binary32) return is_wide ? use(Traits<float, 144>{}) : use(Traits<float, 128>{});
  return is_wide ? use(Traits<half_t, 144>{}) : use(Traits<half_t, 128>{});
}

/// Of a tensor in tensor memory: ((rows, columns of an instruction), 1, instructions). `kBits`: of
/// an element.
template <int kBits, class Tensor>
std::vector<std::vector<TensorPlace>> tensor_places(const Tensor& tensor) {
  constexpr int kLaneShift = 16;
  constexpr int kParts = 32 / kBits;  // of a column: CuTe has them in the highest bits
  const int columns = size<0, 1>(tensor);
  std::vector<std::vector<TensorPlace>> result(size<0, 0>(tensor));
  for (int row = 0; row < size<0, 0>(tensor); ++row) {
    for (int column = 0; column < columns * size<2>(tensor); ++column) {
      const auto offset =
          tensor.layout()(make_coord(row, column % columns), _0{}, column / columns);
      const std::uint32_t address = (tensor.data() + offset).get();
      const auto part = static_cast<int>(std::uint64_t{address} * kParts >> 32);
      result[row].push_back({static_cast<int>(address >> kLaneShift & 0xFF),
                             static_cast<int>(address & 0xFFFF), part * kBits});
    }
  }
  return result;
}

/// Of registers, by a layout from (lane, bit) to the number of a bit in what is moved.
template <class Operation, class Layout>
std::vector<std::vector<TensorPlace>> access_places(const Layout& registers) {
  constexpr int kElementBits = 16;
  constexpr int kColumnBits = 32;
  constexpr int kLaneBits = TMEM::DP_b::value;  // distance of two lanes
  const typename Copy_Traits<Operation>::ValID places;
  std::vector<std::vector<TensorPlace>> result(size<0>(registers));
  for (int lane = 0; lane < size<0>(registers); ++lane) {
    for (int bit = 0; bit < size<1>(registers); bit += kElementBits) {
      const int place = places(registers(lane, bit));
      result[lane].push_back(
          {place / kLaneBits, place % kLaneBits / kColumnBits, place % kColumnBits});
    }
  }
  return result;
}

template <class Operation>
std::vector<std::vector<TensorPlace>> load_places() {
  return access_places<Operation>(typename Copy_Traits<Operation>::DstLayout{});
}

}  // namespace

Fragments wgmma_f32_n136() { return fragments<ValueProduct>(); }
Fragments wgmma_f16_n128() { return fragments<ScoreProduct>(); }
Fragments mma_m16n8k16_f16() { return fragments<SM80_16x8x16_F32F16F16F32_TN>(); }
Fragments mma_m16n8k16_bf16() { return fragments<SM80_16x8x16_F32BF16BF16F32_TN>(); }
Fragments mma_m16n8k32_s8() { return fragments<SM80_16x8x32_S32S8S8S32_TN>(); }

Fragment ldmatrix_x4() {
  using Traits = Copy_Traits<SM75_U32x4_LDSM_N>;
  constexpr int kBits = 16;  // of an element
  const typename Traits::SrcLayout source;
  const typename Traits::DstLayout destination;
  std::vector<Element> sources(size(source) / kBits);  // by the element's number
  for (int lane = 0; lane < size<0>(source); ++lane) {
    for (int i = 0; i < size<1>(source) / kBits; ++i) {
      sources.at(source(lane, i * kBits) / kBits) = {lane, i};
    }
  }
  Fragment result(size<0>(destination));
  for (int lane = 0; lane < size<0>(destination); ++lane) {
    for (int i = 0; i < size<1>(destination) / kBits; ++i) {
      result[lane].push_back(sources.at(destination(lane, i * kBits) / kBits));
    }
  }
  return result;
}

Tile tile(int rows, int width) {
  if (rows == 128 && width == 128) return tile_of<128, 128>();
  if (rows == 136 && width == 128) return tile_of<136, 128>();
  if (rows == 144 && width == 128) return tile_of<144, 128>();
  if (rows == 128 && width == 32) return tile_of<128, 32>();
  throw std::invalid_argument("a tile that no kernel has");
}

std::vector<std::vector<Descriptor>> gmma_descriptors(Operand operand, std::uint32_t address) {
  switch (operand) {
    case Operand::queries:
      return descriptors_of_a<ScoreProduct, 128, 128>(address);
    case Operand::query_columns:
      return descriptors_of_a<ScoreProduct, 128, 32>(address);
    case Operand::keys:
      return descriptors_of_b<ScoreProduct, 128, 128>(address);
    case Operand::key_columns:
      return descriptors_of_b<ScoreProduct, 128, 32>(address);
    case Operand::values:
      return descriptors_of_b<ValueProduct, 136, 128>(address);
  }
  throw std::invalid_argument("an operand that no kernel has");
}

std::string gmma_fields(std::uint64_t descriptor) {
  const auto fields = GmmaDescriptor(descriptor).bitfield;
  return "start_address " + std::to_string(fields.start_address_) + ", leading_byte_offset " +
         std::to_string(fields.leading_byte_offset_) + ", stride_byte_offset " +
         std::to_string(fields.stride_byte_offset_) + ", base_offset " +
         std::to_string(fields.base_offset_) + ", layout_type " +
         to_string(static_cast<GMMA::LayoutType>(fields.layout_type_));
}

std::vector<std::vector<Descriptor>> umma_descriptors(Operand operand, std::uint32_t address) {
  using Scores = BlockTraits<half_t, 128>;
  using Values = BlockTraits<float, 144>;
  switch (operand) {
    case Operand::queries:
      return descriptors_of_a<Scores, 128, 128>(address);
    case Operand::query_columns:
      return descriptors_of_a<Scores, 128, 32>(address);
    case Operand::keys:
      return descriptors_of_b<Scores, 128, 128>(address);
    case Operand::key_columns:
      return descriptors_of_b<Scores, 128, 32>(address);
    case Operand::values:
      return descriptors_of_b<Values, 144, 128>(address);
  }
  throw std::invalid_argument("an operand that no kernel has");
}

std::string umma_fields(std::uint64_t descriptor) {
  UMMA::SmemDescriptor fields;
  fields.desc_ = descriptor;
  return "start_address " + std::to_string(fields.start_address_) + ", leading_byte_offset " +
         std::to_string(fields.leading_byte_offset_) + ", stride_byte_offset " +
         std::to_string(fields.stride_byte_offset_) + ", version " +
         std::to_string(fields.version_) + ", base_offset " + std::to_string(fields.base_offset_) +
         ", lbo_mode " + std::to_string(fields.lbo_mode_) + ", layout_type " +
         std::to_string(fields.layout_type_);
}

std::uint32_t umma_instruction(BlockProduct product) {
  return with_traits<BlockTraits>(product, [](const auto& traits) { return traits.idesc_.desc_; });
}

std::string umma_instruction_fields(std::uint32_t descriptor) {
  UMMA::InstrDescriptor fields{};
  fields.desc_ = descriptor;
  return "c_format " + std::to_string(fields.c_format_) + ", a_format " +
         std::to_string(fields.a_format_) + ", b_format " + std::to_string(fields.b_format_) +
         ", a_major " + std::to_string(fields.a_major_) + ", b_major " +
         std::to_string(fields.b_major_) + ", n_dim " + std::to_string(fields.n_dim_) + ", m_dim " +
         std::to_string(fields.m_dim_);
}

std::vector<std::vector<TensorPlace>> tensor_sums(BlockProduct product, bool a_in_tensor_memory) {
  const auto places = [](const auto& traits) {
    using Traits = remove_cvref_t<decltype(traits)>;
    using Sum = typename Traits::ValTypeC;
    constexpr auto kColumns = get<1>(typename Traits::Shape_MNK{});
    return tensor_places<sizeof_bits_v<Sum>>(Traits::FrgTypeC::make(
        make_shape(make_shape(Int<kBlockRows>{}, kColumns), Int<1>{}, Int<1>{})));
  };
  return a_in_tensor_memory ? with_traits<TensorTraits>(product, places)
                            : with_traits<BlockTraits>(product, places);
}

std::vector<std::vector<TensorPlace>> tensor_a() {
  return tensor_places<8>(TensorTraits<float, 144>::FrgTypeA::make(
      make_shape(make_shape(Int<kBlockRows>{}, Int<32>{}), Int<1>{}, Int<4>{})));
}

std::vector<std::vector<TensorPlace>> tensor_access(TensorAccess access) {
  using Store16 = SM100_TMEM_STORE_32dp32b16x;
  using Store32 = SM100_TMEM_STORE_32dp32b32x;
  switch (access) {
    case TensorAccess::load_x8:
      return load_places<SM100_TMEM_LOAD_32dp32b8x>();
    case TensorAccess::load_x32:
      return load_places<SM100_TMEM_LOAD_32dp32b32x>();
    case TensorAccess::load_x64_pack_16b:
      return load_places<SM100_TMEM_LOAD_32dp32b64x_16b>();
    case TensorAccess::store_x16:
      return access_places<Store16>(typename Copy_Traits<Store16>::SrcLayout{});
    case TensorAccess::store_x32:
      return access_places<Store32>(typename Copy_Traits<Store32>::SrcLayout{});
  }
  throw std::invalid_argument("an access that no kernel has");
}

}  // namespace openvc::cute_oracle

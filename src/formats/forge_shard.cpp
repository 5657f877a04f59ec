#include "formats/forge_shard.h"

#include <algorithm>
#include <array>
#include <optional>

#include "forge_bytes.h"
#include "formats/forge_manifest.h"
#include "formats/xxh3.h"
#include "quant/convert.h"
#include "quant/tiles.h"
#include "text.h"

namespace forge {
namespace {

constexpr std::string_view header_magic = "FORGESHD", footer_magic = "FORGEEND";
constexpr std::size_t header_bytes = 64, record_bytes = 56;
// Footer: a hash a plane, then the index's, the header's, and the magic.
constexpr std::size_t footer_fixed = 24;

// ---- Ids on disk. They never change; new ones are added.
// f8_e4m3 and f8_e5m2 are reserved for plain matrices of those types.
enum class TypeId : std::uint8_t {
    f32 = 1, f16 = 2, bf16 = 3, f8_e4m3 = 4, f8_e5m2 = 5,
    affine = 16, kquant = 17, lut4 = 18, mxfp4 = 19, mxfp8 = 20, nvfp4 = 21,
};

template <typename T, std::size_t N>
std::uint8_t id_of(const std::array<T, N>& table, T value) {
    return static_cast<std::uint8_t>(std::find(table.begin(), table.end(), value) - table.begin());
}
constexpr std::array scales{ScaleKind::none, ScaleKind::f16, ScaleKind::bf16, ScaleKind::f32, ScaleKind::sub_u8,
                            ScaleKind::sub_i8, ScaleKind::sub_u4, ScaleKind::e8m0, ScaleKind::ue4m3};
constexpr std::array offsets{OffsetKind::none, OffsetKind::bias, OffsetKind::sub_u8, OffsetKind::sub_u4};
constexpr std::array packings{Packing::dense, Packing::stream, Packing::split_4_1, Packing::split_4_2, Packing::split_2_1};

bool is_float(ScaleKind kind) { return kind == ScaleKind::f16 || kind == ScaleKind::bf16 || kind == ScaleKind::f32; }

TypeId type_of(const WeightFormat& f) {
    switch (f.map) {
        case CodeMap::dense:
            if (f.dense_type == DType::f32) return TypeId::f32;
            if (f.dense_type == DType::f16) return TypeId::f16;
            if (f.dense_type == DType::bf16) return TypeId::bf16;
            break;
        case CodeMap::integer: return is_float(f.scale) ? TypeId::affine : TypeId::kquant;
        case CodeMap::iq4nl: return TypeId::lut4;
        case CodeMap::e2m1: return f.scale == ScaleKind::ue4m3 ? TypeId::nvfp4 : TypeId::mxfp4;
        case CodeMap::e4m3: return TypeId::mxfp8;
    }
    fail(ErrorKind::internal, "weights of the format {} have no type in a shard", describe(f));
}

// The formats that there are: those of GGUF's types and those of MLX's modes.
bool is_known(const WeightFormat& f) {
    if (f.is_dense()) return f.group == 0 && f.zero == 0 && f.scale == ScaleKind::none && f.offset == OffsetKind::none &&
                             f.packing == Packing::dense && f.bits == 8 * size_of(f.dense_type);
    constexpr std::array coded{GgufType::q4_0, GgufType::q4_1, GgufType::q5_0, GgufType::q5_1, GgufType::q8_0, GgufType::q2_k,
                               GgufType::q3_k, GgufType::q4_k, GgufType::q5_k, GgufType::q6_k, GgufType::iq4_nl, GgufType::iq4_xs,
                               GgufType::tq2_0, GgufType::mxfp4, GgufType::nvfp4};
    for (const GgufType type : coded)
        if (f == format_of_gguf(type, "")) return true;
    if (f.packing != Packing::stream || f.zero != 0) return false;
    if (f.map == CodeMap::e4m3) return f.bits == 8 && f.group == 32 && f.scale == ScaleKind::e8m0 && f.offset == OffsetKind::none;
    return f.map == CodeMap::integer && f.bits >= 1 && f.bits <= 8 && f.bits != 7 && (f.group == 32 || f.group == 64 || f.group == 128) &&
           is_float(f.scale) && f.offset == OffsetKind::bias;
}

std::uint64_t up(std::uint64_t value, std::uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

std::uint64_t end_of_planes(const std::vector<PackedWeight>& weights) {
    std::uint64_t end = kPlaneAlignment;
    for (const PackedWeight& weight : weights)
        for (const PackedPlane& plane : weight.planes) end = std::max(end, plane.offset + plane.bytes);
    return end;
}

std::string encode_index(const std::vector<PackedWeight>& weights) {
    ByteWriter out;
    for (const PackedWeight& w : weights) {
        out.number(static_cast<std::uint16_t>(w.key.name.size()));
        out.number(static_cast<std::uint8_t>(type_of(w.format)));
        out.number<std::uint8_t>(w.tiled);
        out.number(w.format.bits);
        out.number(id_of(packings, w.format.packing));
        out.number(w.format.group);
        out.number(w.format.zero);
        out.number(id_of(scales, w.format.scale));
        out.number(id_of(offsets, w.format.offset));
        out.number(static_cast<std::uint8_t>(w.planes.size()));
        out.number<std::uint32_t>(w.key.floats);
        out.number<std::uint32_t>(0);  // reserved
        out.number(w.global_scale);
        out.number(w.key.first_row);
        out.number(w.key.row_map);
        out.number(static_cast<std::uint64_t>(w.rows));
        out.number(static_cast<std::uint64_t>(w.cols));
        for (const PackedPlane& plane : w.planes) {
            out.number(static_cast<std::uint32_t>(plane.kind));
            out.number<std::uint32_t>(0);
            out.number(plane.offset);
            out.number(plane.stride);
            out.number(plane.bytes);
        }
        out.raw(w.key.name);
        out.pad_to(8);
    }
    return out.take();
}

std::size_t plane_count(const std::vector<PackedWeight>& weights) {
    std::size_t count = 0;
    for (const PackedWeight& weight : weights) count += weight.planes.size();
    return count;
}

std::string encode_header(const std::vector<PackedWeight>& weights, std::size_t index_bytes) {
    const std::uint64_t index = up(end_of_planes(weights), 64), footer = index + index_bytes;
    const std::uint64_t footer_bytes = 8 * plane_count(weights) + footer_fixed;
    ByteWriter out;
    out.raw(header_magic);
    out.number(static_cast<std::uint32_t>(kForgeVersion));
    out.number(static_cast<std::uint32_t>(header_bytes));
    out.number(footer + footer_bytes);  // the shard's size
    out.number(index);
    out.number(static_cast<std::uint64_t>(index_bytes));
    out.number(footer);
    out.number(footer_bytes);
    out.number(static_cast<std::uint64_t>(weights.size()));
    return out.take();
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// One record of the index.
class RecordReader {
  public:
    RecordReader(ByteReader& in, const std::string& source) : in_(in), source_(source) {}

    PackedWeight read(std::uint64_t end_of_planes) {
        PackedWeight w;
        const auto name_bytes = in_.number<std::uint16_t>("a weight's record");
        const auto type = in_.number<std::uint8_t>("a weight's record");
        const auto layout = in_.number<std::uint8_t>("a weight's record");
        w.format.bits = in_.number<std::uint8_t>("a weight's record");
        const auto packing = in_.number<std::uint8_t>("a weight's record");
        w.format.group = in_.number<std::uint16_t>("a weight's record");
        w.format.zero = in_.number<std::uint8_t>("a weight's record");
        const auto scale = in_.number<std::uint8_t>("a weight's record");
        const auto offset = in_.number<std::uint8_t>("a weight's record");
        const auto planes = in_.number<std::uint8_t>("a weight's record");
        const auto flags = in_.number<std::uint32_t>("a weight's record");
        const auto reserved = in_.number<std::uint32_t>("a weight's record");
        w.global_scale = in_.number<float>("a weight's record");
        w.key.first_row = in_.number<std::int64_t>("a weight's record");
        w.key.row_map = in_.number<std::uint64_t>("a weight's record");
        const auto rows = in_.number<std::uint64_t>("a weight's record"), cols = in_.number<std::uint64_t>("a weight's record");
        for (int i = 0; i < planes; ++i) {
            const auto kind = in_.number<std::uint32_t>("a plane's record");
            in_.number<std::uint32_t>("a plane's record");
            PackedPlane plane{};
            plane.offset = in_.number<std::uint64_t>("a plane's record");
            plane.stride = in_.number<std::uint64_t>("a plane's record");
            plane.bytes = in_.number<std::uint64_t>("a plane's record");
            if (kind >= kPlaneKinds) fail("{}: a plane has the kind {}, which this version does not know", source_, kind);
            plane.kind = static_cast<PlaneKind>(kind);
            w.planes.push_back(plane);
        }
        w.key.name = in_.text(name_bytes, "a weight's name");
        in_.raw(up(in_.position(), 8) - in_.position(), "a weight's record");
        const auto wrong = [&](std::string_view what) { fail("{}: weight '{}': {}", source_, printable(w.key.name), what); };
        if (layout > 1 || flags > 1 || reserved != 0 || packing >= packings.size() || scale >= scales.size() || offset >= offsets.size())
            wrong("its record has values that this version does not know");
        w.tiled = layout == 1;
        w.key.floats = flags == 1;
        w.format.packing = packings[packing];
        w.format.scale = scales[scale];
        w.format.offset = offsets[offset];
        set_type(w, type);
        constexpr std::uint64_t most = std::uint64_t{1} << 40;
        if (rows == 0 || cols == 0 || rows > most || cols > most / rows || w.key.first_row < 0) wrong("its shape is impossible");
        w.rows = static_cast<std::int64_t>(rows);
        w.cols = static_cast<std::int64_t>(cols);
        if (!is_known(w.format)) wrong("its format is none that there is");
        const bool super = w.format.scale == ScaleKind::sub_u8 || w.format.scale == ScaleKind::sub_i8 || w.format.scale == ScaleKind::sub_u4;
        if (!w.format.is_dense() && w.cols % (super ? 256 : w.format.group) != 0) wrong("its rows are not whole groups");
        if (w.tiled && (!can_tile(w.format) || w.rows < kTiledRows)) wrong("it is said to be in tiles, which its format or size does not have");
        if (w.key.floats && w.format != WeightFormat{}) wrong("it is said to hold plain floats");
        const std::vector<PackedPlane> wanted = packed_planes(w.format, w.rows, w.cols, w.tiled);
        if (wanted.size() != w.planes.size()) wrong("it has not the planes of its format");
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const PackedPlane& plane = w.planes[i];
            if (plane.kind != wanted[i].kind || plane.stride != wanted[i].stride || plane.bytes != wanted[i].bytes)
                wrong("a plane has not the size that format and shape ask for");
            if (plane.offset % kPlaneAlignment != 0 || plane.offset < kPlaneAlignment || plane.offset > end_of_planes || plane.bytes > end_of_planes - plane.offset)
                wrong("a plane lies outside the shard or not at a multiple of 16 KiB");
        }
        return w;
    }

  private:
    void set_type(PackedWeight& w, std::uint8_t type) const {
        w.format.map = CodeMap::integer;
        switch (static_cast<TypeId>(type)) {
            case TypeId::f32: w.format.map = CodeMap::dense; w.format.dense_type = DType::f32; break;
            case TypeId::f16: w.format.map = CodeMap::dense; w.format.dense_type = DType::f16; break;
            case TypeId::bf16: w.format.map = CodeMap::dense; w.format.dense_type = DType::bf16; break;
            case TypeId::affine: case TypeId::kquant: break;
            case TypeId::lut4: w.format.map = CodeMap::iq4nl; break;
            case TypeId::mxfp4: case TypeId::nvfp4: w.format.map = CodeMap::e2m1; break;
            case TypeId::mxfp8: w.format.map = CodeMap::e4m3; break;
            case TypeId::f8_e4m3: case TypeId::f8_e5m2:
                fail(ErrorKind::unsupported, "{}: weight '{}' is a matrix of fp8 numbers, which are not implemented yet", source_, printable(w.key.name));
            default: fail(ErrorKind::unsupported, "{}: weight '{}' has the type {}, which this version does not know; use a newer Forge", source_, printable(w.key.name), type);
        }
        if (static_cast<std::uint8_t>(type_of(w.format)) != type) fail("{}: weight '{}': its type and its scales contradict each other", source_, printable(w.key.name));
    }

    ByteReader& in_;
    const std::string& source_;
};

}  // namespace

std::string_view name_of(PlaneKind kind) {
    constexpr std::array<std::string_view, kPlaneKinds> names{"codes", "high bits", "scales", "offsets", "super scales", "super minima"};
    return names[static_cast<std::size_t>(kind)];
}

std::vector<PackedPlane> packed_planes(const WeightFormat& format, std::int64_t rows, std::int64_t cols, bool tiled) {
    if (tiled) {
        const std::uint64_t stride = tile_bytes(format, cols), tiles = static_cast<std::uint64_t>((rows + kTiledRows - 1) / kTiledRows);
        return {{PlaneKind::codes, 0, stride, tiles * stride, 0}};
    }
    const PlaneStrides s = tight_strides(format, cols);
    const std::size_t strides[kPlaneKinds] = {s.codes, s.codes_high, s.scales, s.offsets, s.super_scales, s.super_mins};
    std::vector<PackedPlane> planes;
    for (int i = 0; i < kPlaneKinds; ++i)
        if (strides[i]) planes.push_back({static_cast<PlaneKind>(i), 0, strides[i], static_cast<std::uint64_t>(rows) * strides[i], 0});
    return planes;
}

std::uint64_t lay_out_shard(std::vector<PackedWeight>& weights) {
    std::uint64_t at = kPlaneAlignment;
    for (PackedWeight& weight : weights)
        for (PackedPlane& plane : weight.planes) {
            plane.offset = at;
            at = up(at + plane.bytes, kPlaneAlignment);
        }
    return up(end_of_planes(weights), 64) + encode_index(weights).size() + 8 * plane_count(weights) + footer_fixed;
}

std::string shard_header(const std::vector<PackedWeight>& weights) { return encode_header(weights, encode_index(weights).size()); }

std::uint64_t shard_index_hash(const std::vector<PackedWeight>& weights) { return xxh3(bytes_of(encode_index(weights))); }

std::string shard_tail(const std::vector<PackedWeight>& weights) {
    const std::string index = encode_index(weights);
    ByteWriter out;
    const std::uint64_t end = end_of_planes(weights);
    out.raw(std::string(up(end, 64) - end, '\0'));
    out.raw(index);
    for (const PackedWeight& weight : weights)
        for (const PackedPlane& plane : weight.planes) out.number(plane.hash);
    out.number(xxh3(bytes_of(index)));
    out.number(xxh3(bytes_of(encode_header(weights, index.size()))));
    out.raw(footer_magic);
    return out.take();
}

ShardIndex read_shard(std::span<const std::byte> bytes, const std::string& source) {
    ByteReader in(bytes, source);
    if (in.left() < header_bytes || in.text(8, "the header") != header_magic) fail("{}: this is no shard of a .forge model: it should begin with {}", source, header_magic);
    if (const auto version = in.number<std::uint32_t>("the header"); version != kForgeVersion)
        fail(ErrorKind::unsupported, "{}: the shard has version {}, and this version of Forge reads {}", source, version, kForgeVersion);
    const auto own_bytes = in.number<std::uint32_t>("the header");
    const auto size = in.number<std::uint64_t>("the header"), index_at = in.number<std::uint64_t>("the header"), index_bytes = in.number<std::uint64_t>("the header");
    const auto footer_at = in.number<std::uint64_t>("the header"), footer_bytes = in.number<std::uint64_t>("the header"), count = in.number<std::uint64_t>("the header");
    if (size != bytes.size()) fail("{}: the shard should have {} bytes, but it has {}; it is truncated or was swapped", source, size, bytes.size());
    if (own_bytes != header_bytes || index_at < kPlaneAlignment || index_at > size || index_bytes > size - index_at || footer_at != index_at + index_bytes ||
        footer_bytes != size - footer_at || footer_bytes < footer_fixed)
        fail("{}: the shard's header contradicts itself; it is damaged", source);
    const auto footer = bytes.subspan(static_cast<std::size_t>(footer_at));
    ByteReader end(footer.subspan(footer.size() - footer_fixed), source);
    const auto index_hash = end.number<std::uint64_t>("the footer"), header_hash = end.number<std::uint64_t>("the footer");
    if (end.text(8, "the footer") != footer_magic) fail("{}: the shard should end with {}; it is damaged", source, footer_magic);
    const auto index = bytes.subspan(static_cast<std::size_t>(index_at), static_cast<std::size_t>(index_bytes));
    if (xxh3(bytes.first(header_bytes)) != header_hash) fail("{}: the XXH3 of the shard's header is another than the footer says; it is damaged", source);
    if (xxh3(index) != index_hash) fail("{}: the XXH3 of the shard's index is another than the footer says; it is damaged", source);
    ShardIndex out;
    out.index_hash = index_hash;
    ByteReader records(index, source);
    const std::size_t weights = records.count(count, record_bytes, "the shard's weights");
    out.weights.reserve(weights);
    RecordReader reader(records, source);
    std::size_t planes = 0;
    for (std::size_t i = 0; i < weights; ++i) {
        out.weights.push_back(reader.read(index_at));
        planes += out.weights.back().planes.size();
    }
    records.finished();
    if (footer_bytes != 8 * planes + footer_fixed) fail("{}: the footer holds {} bytes, but {} planes need {}", source, footer_bytes, planes, 8 * planes + footer_fixed);
    ByteReader hashes(footer, source);
    for (PackedWeight& weight : out.weights)
        for (PackedPlane& plane : weight.planes) plane.hash = hashes.number<std::uint64_t>("the footer");
    return out;
}

}  // namespace forge

#include "pack/safetensors_writer.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"

namespace forge {

static_assert(std::endian::native == std::endian::little, "safetensors are written as little-endian");

std::string_view safetensors_name(DType type) {
    switch (type) {
        case DType::f32:
            return "F32";
        case DType::f16:
            return "F16";
        case DType::bf16:
            return "BF16";
        case DType::f64:
            return "F64";
        case DType::i8:
            return "I8";
        case DType::u8:
            return "U8";
        case DType::i16:
            return "I16";
        case DType::u16:
            return "U16";
        case DType::i32:
            return "I32";
        case DType::u32:
            return "U32";
        case DType::i64:
            return "I64";
        case DType::u64:
            return "U64";
        case DType::boolean:
            return "BOOL";
        case DType::f8_e4m3:
            return "F8_E4M3";
        case DType::f8_e5m2:
            return "F8_E5M2";
    }
    fail(ErrorKind::internal, "element type {} has no safetensors name", static_cast<int>(type));
}

SafetensorsWriter::SafetensorsWriter(std::string target) : file_(std::move(target)) {}

void SafetensorsWriter::set_metadata(std::string_view key, std::string_view value) {
    metadata_[std::string(key)] = value;
}

void SafetensorsWriter::add_tensor(std::string_view name, std::span<const std::int64_t> shape, DType type) {
    if (begun_) fail(ErrorKind::internal, "tensor '{}' is added after the header was written", name);
    if (name == "__metadata__" || !names_.emplace(name).second)
        fail(ErrorKind::internal, "tensor name '{}' is taken", name);
    std::uint64_t bytes = size_of(type);
    for (std::int64_t dim : shape) {
        if (dim < 0) fail(ErrorKind::internal, "tensor '{}' has a dimension of {}", name, dim);
        bytes *= static_cast<std::uint64_t>(dim);
    }
    tensors_.push_back({std::string(name), {shape.begin(), shape.end()}, type, bytes});
}

std::uint64_t SafetensorsWriter::data_bytes() const {
    std::uint64_t sum = 0;
    for (const Entry& tensor : tensors_) sum += tensor.bytes;
    return sum;
}

std::vector<std::size_t> SafetensorsWriter::begin() {
    if (begun_) fail(ErrorKind::internal, "the safetensors header is written twice");
    begun_ = true;
    std::vector<std::size_t> order(tensors_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        const std::size_t x = size_of(tensors_[a].type), y = size_of(tensors_[b].type);
        return x != y ? x > y : a < b;
    });
    // Assembled by hand: an ordered JSON object looks every name up on insertion.
    using Json = nlohmann::json;
    std::string header = "{";
    if (!metadata_.empty()) header += "\"__metadata__\":" + Json(metadata_).dump() + ",";
    std::uint64_t offset = 0;
    for (std::size_t i : order) {
        const Entry& tensor = tensors_[i];
        Json entry;
        entry["dtype"] = safetensors_name(tensor.type);
        entry["shape"] = tensor.shape;
        entry["data_offsets"] = {offset, offset + tensor.bytes};
        header += Json(tensor.name).dump() + ":" + entry.dump() + ",";
        offset += tensor.bytes;
    }
    if (header.back() == ',') header.pop_back();
    header += '}';
    header.append((64 - (8 + header.size()) % 64) % 64, ' ');
    const std::uint64_t length = header.size();
    file_.write(std::as_bytes(std::span(&length, 1)));
    file_.write(header);
    return order;
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
    if (!begun_) fail(ErrorKind::internal, "tensor data is written before the safetensors header");
    file_.write(bytes);
    written_ += bytes.size();
}

void SafetensorsWriter::skip_data() {
    if (!begun_) begin();
    file_.skip(data_bytes() - written_);
    written_ = data_bytes();
}

void SafetensorsWriter::finish() {
    if (!begun_) begin();
    if (written_ != data_bytes())
        fail(ErrorKind::internal, "the tensors have {} bytes, but {} were written", data_bytes(), written_);
    file_.finish();
}

}  // namespace forge

#include "tensor_data.h"

#include <cstring>

#include "base/error.h"
#include "base/float16.h"

namespace forge {

std::optional<DType> dense_float_type(const Tensor& tensor) {
    if (tensor.is_block) {
        switch (tensor.block) {
            case GgufType::f32: return DType::f32;
            case GgufType::f16: return DType::f16;
            case GgufType::bf16: return DType::bf16;
            default: return std::nullopt;
        }
    }
    if (tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16) return tensor.dtype;
    return std::nullopt;
}

void check_size(const Tensor& tensor) {
    const auto elements = static_cast<std::uint64_t>(tensor.elements());
    std::uint64_t bytes = 0;
    if (!tensor.is_block) {
        bytes = elements * size_of(tensor.dtype);
    } else {
        const auto block = gguf_block_size(static_cast<std::uint32_t>(tensor.block));
        if (!block || tensor.cols() % block->elements != 0)
            fail("{}: rows of {} elements are not whole blocks", tensor.describe(), tensor.cols());
        bytes = elements / static_cast<std::uint64_t>(block->elements) * static_cast<std::uint64_t>(block->bytes);
    }
    if (bytes != tensor.data.size())
        fail("{} should take {} bytes, but the file has {} for it", tensor.describe(), bytes, tensor.data.size());
}

std::vector<float> floats_of(const Tensor& tensor) {
    check_size(tensor);
    const auto type = dense_float_type(tensor);
    if (!type && !(tensor.is_block && gguf_decodable(static_cast<std::uint32_t>(tensor.block))))
        fail(ErrorKind::unsupported, "{}: elements of this type cannot be read as numbers here", tensor.describe());
    std::vector<float> out(static_cast<std::size_t>(tensor.elements()));
    if (!type) {
        const std::size_t row_bytes = tensor.data.size() / static_cast<std::size_t>(tensor.rows());
        for (std::int64_t r = 0; r < tensor.rows(); ++r)
            decode_gguf_row(tensor.block, tensor.data.data() + static_cast<std::size_t>(r) * row_bytes, tensor.cols(), out.data() + r * tensor.cols());
        return out;
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
        if (*type == DType::f32) {
            std::memcpy(&out[i], tensor.data.data() + 4 * i, 4);
        } else {
            std::uint16_t bits;
            std::memcpy(&bits, tensor.data.data() + 2 * i, 2);
            out[i] = *type == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
        }
    }
    return out;
}

}  // namespace forge

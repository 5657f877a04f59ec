// {"config": {..}, "tensors": {name: [dtype, [shape]]}}, which is what a model folder says with all
// its weights zero -> descriptor and bound weights, or an Error. Hugging Face and MLX.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "formats/model_file.h"
#include "model/bind.h"

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kDataBytes = 512 << 10;  // of the largest tensor

bool add_tensor(const std::string& name, const Json& entry, std::span<const std::byte> zeros,
                forge::ModelFile& file) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_array()) return false;
    forge::Tensor tensor;
    tensor.name = name;
    const auto dtypes = {forge::DType::u8, forge::DType::f16, forge::DType::bf16, forge::DType::f32,
                         forge::DType::u32};
    const auto dtype = std::find_if(dtypes.begin(), dtypes.end(), [&](forge::DType type) {
        return name_of(type) == entry[0].get<std::string>();
    });
    if (dtype == dtypes.end()) return false;
    tensor.dtype = *dtype;
    std::size_t bytes = size_of(tensor.dtype);
    for (const Json& dim : entry[1]) {
        if (!dim.is_number_unsigned()) return false;
        const auto count = dim.get<std::uint64_t>();
        if (count > kDataBytes || bytes * count > kDataBytes) return false;
        bytes *= count;
        tensor.shape.push_back(static_cast<std::int64_t>(count));
    }
    tensor.data = zeros.first(bytes);
    file.tensors.push_back(std::move(tensor));
    return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static forge::ThreadPool pool(1);
    static const std::vector<std::byte> zeros(kDataBytes);
    forge::set_log_level(forge::LogLevel::error);
    const Json all = Json::parse(data, data + size, nullptr, false);
    if (!all.is_object() || !all.contains("config") || !all.contains("tensors")) return 0;
    if (!all["config"].is_object() || !all["tensors"].is_object()) return 0;
    forge::ModelFile file;
    file.path = "fuzz";
    file.config = all["config"];
    file.format =
        file.config.contains("quantization") ? forge::ModelFormat::mlx : forge::ModelFormat::huggingface;
    for (const auto& [name, entry] : all["tensors"].items())
        if (!add_tensor(name, entry, zeros, file)) return 0;
    try {
        file.index_names();
        forge::bind_model(file, pool);
    } catch (const forge::Error& error) {
        if (error.kind() == forge::ErrorKind::internal) std::abort();
    }
    return 0;
}

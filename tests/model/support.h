// Hand-made model files for the tests of this room.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "formats/model_file.h"

namespace forge::test {

using Json = nlohmann::ordered_json;

// A folder that holds a config and no tensors.
inline ModelFile config_file(const std::string& config, const std::string& generation = "null") {
    ModelFile file;
    file.format = ModelFormat::huggingface;
    file.path = "models/test";
    file.config = Json::parse(config);
    file.generation_config = Json::parse(generation);
    return file;
}

inline ModelFile gguf_file(std::initializer_list<std::pair<std::string, MetaValue>> values) {
    ModelFile file;
    file.format = ModelFormat::gguf;
    file.path = "test.gguf";
    file.metadata.source = "test.gguf";
    for (const auto& [key, value] : values) file.metadata.set(key, value);
    return file;
}

// Owns the bytes of tensors that a test makes up.
class Tensors {
  public:
    explicit Tensors(ModelFile& file) : file_(file) {}

    void f32(const std::string& name, std::vector<std::int64_t> shape, std::vector<float> values) {
        add(name, std::move(shape), DType::f32, values.data(), values.size() * 4);
    }
    // Element i is first + step * i.
    void ramp(const std::string& name, std::vector<std::int64_t> shape, float first = 0, float step = 1) {
        std::int64_t count = 1;
        for (const std::int64_t n : shape) count *= n;
        std::vector<float> values;
        for (std::int64_t i = 0; i < count; ++i) values.push_back(first + step * static_cast<float>(i));
        f32(name, std::move(shape), std::move(values));
    }
    Tensor& add(const std::string& name, std::vector<std::int64_t> shape, DType type, const void* data, std::size_t bytes,
                std::size_t misalign = 0) {
        auto copy = std::make_unique<std::byte[]>(bytes + misalign + 1);
        std::memcpy(copy.get() + misalign, data, bytes);
        Tensor tensor;
        tensor.name = name;
        tensor.shape = std::move(shape);
        tensor.dtype = type;
        tensor.data = {copy.get() + misalign, bytes};
        keep_.push_back(std::move(copy));
        file_.tensors.push_back(std::move(tensor));
        return file_.tensors.back();
    }
    void done() { file_.index_names(); }

  private:
    ModelFile& file_;
    std::vector<std::unique_ptr<std::byte[]>> keep_;
};

// The message of the Error that `body` throws; its kind is checked.
inline std::string error_of(ErrorKind kind, const std::function<void()>& body) {
    try {
        body();
    } catch (const Error& error) {
        EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
        return error.what();
    }
    ADD_FAILURE() << "no error was thrown";
    return {};
}

inline std::string read_text(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace forge::test

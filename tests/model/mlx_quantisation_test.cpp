// What config.json and the tensors of an MLX folder say about each weight, and
// that what contradicts itself is refused. Values are the tiny models' matter.
#include "mlx_quantisation.h"

#include "model/bind.h"
#include "support.h"

namespace forge {
namespace {

using test::Tensors;
using testing::AllOf;
using testing::HasSubstr;

// A folder with one module "m": a 4 x 64 matrix of `bits`, scales per `group`.
struct Folder {
    explicit Folder(const std::string& block) : file(test::config_file(R"({"quantization":)" + block + "}")), tensors(file) {
        file.format = ModelFormat::mlx;
    }
    Folder& codes(std::int64_t bits, DType type = DType::u32) { return zeros("m.weight", {4, 64 * bits / 32}, type); }
    Folder& scales(std::int64_t group, DType type, const std::string& name = "scales") { return zeros("m." + name, {4, 64 / group}, type); }
    Folder& zeros(const std::string& name, std::vector<std::int64_t> shape, DType type) {
        std::size_t bytes = size_of(type);
        for (const std::int64_t n : shape) bytes *= static_cast<std::size_t>(n);
        const std::vector<std::byte> data(bytes);
        tensors.add(name, std::move(shape), type, data.data(), bytes);
        return *this;
    }
    std::optional<QuantisedTensor> read(std::int64_t cols = 64) {
        tensors.done();
        const MlxQuantisation quantisation(file);
        return quantisation.of(file.get("m.weight"), cols);
    }
    std::string refused(ErrorKind kind = ErrorKind::invalid_input) {
        return test::error_of(kind, [&] { read(); });
    }
    ModelFile file;
    Tensors tensors;
};

const std::string four = R"({"group_size":64,"bits":4})";

std::string format_of(Folder& folder) {
    const auto found = folder.read();
    return found ? describe(found->format) : "plain";
}

TEST(MlxQuantisation, UnlistedModulesAreWhatTheirTensorsSay) {
    EXPECT_EQ(format_of(Folder(four).codes(4).scales(64, DType::bf16).scales(64, DType::bf16, "biases")), "q4/64 bf16 +bias");
    EXPECT_EQ(format_of(Folder(four).codes(3).scales(32, DType::f16).scales(32, DType::f16, "biases")), "q3/32 f16 +bias");
    EXPECT_EQ(format_of(Folder(four).codes(4).scales(32, DType::u8)), "e2m1/32 e8m0");
    EXPECT_EQ(format_of(Folder(four).codes(8).scales(32, DType::u8)), "e4m3/32 e8m0");
    EXPECT_EQ(format_of(Folder(four).codes(4).scales(16, DType::u8)), "e2m1/16 ue4m3");
    EXPECT_EQ(format_of(Folder(four).zeros("m.weight", {4, 64}, DType::bf16)), "plain");
    EXPECT_EQ(format_of(Folder(R"({"group_size":64,"bits":4,"m":false})").zeros("m.weight", {4, 64}, DType::bf16)), "plain");
}

TEST(MlxQuantisation, AListedModuleWithoutAModeIsAffine) {
    const std::string block = R"({"group_size":32,"bits":4,"mode":"mxfp4","m":{"group_size":64,"bits":8}})";
    EXPECT_EQ(format_of(Folder(block).codes(8).scales(64, DType::bf16).scales(64, DType::bf16, "biases")), "q8/64 bf16 +bias");
    EXPECT_EQ(format_of(Folder(R"({"group_size":32,"bits":4,"mode":"mxfp4","m":true})").codes(4).scales(32, DType::u8)), "e2m1/32 e8m0");
    EXPECT_EQ(format_of(Folder(R"({"group_size":64,"bits":4,"m":{"mode":"nvfp4"}})").codes(4).scales(16, DType::u8)), "e2m1/16 ue4m3");
}

TEST(MlxQuantisation, GlobalScalesStandForTheLargestMagnitude) {
    Folder one(four);
    one.codes(4).scales(16, DType::u8);
    one.tensors.f32("m.global_scale", {1}, {5376});
    EXPECT_EQ(one.read()->scale_of(3), 2);
    Folder stacked(four);
    stacked.zeros("m.weight", {2, 4, 8}, DType::u32).zeros("m.scales", {2, 4, 4}, DType::u8);
    stacked.tensors.f32("m.global_scale", {2}, {2688, 1344});
    const auto found = stacked.read();
    EXPECT_EQ(found->scale_of(0), 1);
    EXPECT_EQ(found->scale_of(1), 0.5f);
    Folder odd(four);
    odd.codes(4).scales(16, DType::u8);
    odd.tensors.f32("m.global_scale", {3}, {1, 1, 1});
    EXPECT_THAT(odd.refused(), HasSubstr("one number"));
}

TEST(MlxQuantisation, ContradictionsAreRefused) {
    const auto affine = [](const std::string& block) {
        Folder folder(block);
        return folder.codes(4).scales(64, DType::bf16).scales(64, DType::bf16, "biases").refused();
    };
    EXPECT_THAT(affine(R"({"group_size":64,"bits":4,"m":false})"), AllOf(HasSubstr("'m' is false"), HasSubstr("m.scales")));
    EXPECT_THAT(affine(R"({"group_size":64,"bits":4,"m":{"bits":8,"group_size":64}})"), AllOf(HasSubstr("affine 8 bits"), HasSubstr("affine 4 bits")));
    EXPECT_THAT(affine(R"({"group_size":64,"bits":4,"m":{"mode":"mxfp4"}})"), HasSubstr("mxfp4"));
    EXPECT_THAT(affine(R"({"group_size":64,"bits":4,"m":"q4"})"), HasSubstr("true or false"));
    EXPECT_THAT(Folder(R"({"group_size":64,"bits":4,"m":true})").zeros("m.weight", {4, 64}, DType::bf16).refused(), HasSubstr("no tensor m.scales"));
    EXPECT_THAT(Folder(four).codes(4).refused(), HasSubstr("no tensor m.scales"));
    EXPECT_THAT(Folder(four).codes(4).scales(64, DType::bf16).refused(), HasSubstr("no tensor m.biases"));
    EXPECT_THAT(Folder(four).codes(4).scales(64, DType::bf16).scales(64, DType::f16, "biases").refused(), HasSubstr("one shape and type"));
    EXPECT_THAT(Folder(four).codes(4).scales(32, DType::u8).scales(32, DType::u8, "biases").refused(), HasSubstr("has no biases"));
    EXPECT_THAT(Folder(four).codes(4, DType::f32).scales(32, DType::u8).refused(), HasSubstr("u32"));
    EXPECT_THAT(Folder(four).zeros("m.weight", {4, 9}, DType::u32).scales(32, DType::u8).refused(), HasSubstr("do not fit 64 inputs"));
    EXPECT_THAT(Folder(four).codes(4).zeros("m.scales", {3, 2}, DType::u8).refused(), HasSubstr("rows"));
    EXPECT_THAT(Folder(four).codes(4).zeros("m.scales", {4}, DType::u8).refused(), HasSubstr("rows"));
    EXPECT_THAT(Folder(four).codes(4).scales(16, DType::bf16).refused(ErrorKind::unsupported), HasSubstr("groups of 16"));
}

TEST(MlxQuantisation, UnknownParametersAreRefusedByName) {
    const auto refused = [](const std::string& block, ErrorKind kind) {
        ModelFile file = test::config_file(R"({"quantization":)" + block + "}");
        file.format = ModelFormat::mlx;
        return test::error_of(kind, [&] { MlxQuantisation quantisation(file); });
    };
    EXPECT_THAT(refused(R"({"group_size":64,"bits":4,"mode":"int4"})", ErrorKind::unsupported), HasSubstr("\"int4\""));
    EXPECT_THAT(refused(R"({"group_size":64,"bits":7})", ErrorKind::unsupported), HasSubstr("7 bits"));
    EXPECT_THAT(refused(R"({"group_size":48,"bits":4})", ErrorKind::unsupported), HasSubstr("groups of 48"));
    EXPECT_THAT(refused(R"({"group_size":64,"bits":"4"})", ErrorKind::invalid_input), HasSubstr("'bits'"));
    EXPECT_THAT(refused(R"({"group_size":1e9,"bits":4})", ErrorKind::invalid_input), HasSubstr("'group_size'"));
}

}  // namespace
}  // namespace forge

#include "quant/mlx_format.h"

#include <algorithm>

namespace forge {

std::string_view name_of(MlxMode mode) { return mlx_mode_names[static_cast<std::size_t>(mode)]; }

std::optional<MlxMode> mlx_mode(std::string_view name) {
    const auto found = std::find(mlx_mode_names.begin(), mlx_mode_names.end(), name);
    if (found == mlx_mode_names.end()) return std::nullopt;
    return static_cast<MlxMode>(found - mlx_mode_names.begin());
}

MlxFormat mlx_default(MlxMode mode) {
    switch (mode) {
        case MlxMode::affine: break;
        case MlxMode::mxfp4: return {mode, 4, 32};
        case MlxMode::mxfp8: return {mode, 8, 32};
        case MlxMode::nvfp4: return {mode, 4, 16};
    }
    return {MlxMode::affine, 4, 64};
}

WeightFormat mlx_planes(const MlxFormat& format, DType scales) {
    WeightFormat planes;
    planes.packing = Packing::stream;
    planes.bits = static_cast<std::uint8_t>(format.bits);
    planes.group = static_cast<std::uint16_t>(format.group);
    switch (format.mode) {
        case MlxMode::affine:
            planes.map = CodeMap::integer;
            planes.scale = scales == DType::f16 ? ScaleKind::f16 : scales == DType::bf16 ? ScaleKind::bf16 : ScaleKind::f32;
            planes.offset = OffsetKind::bias;
            break;
        case MlxMode::mxfp4:
            planes.map = CodeMap::e2m1;
            planes.scale = ScaleKind::e8m0;
            break;
        case MlxMode::mxfp8:
            planes.map = CodeMap::e4m3;
            planes.scale = ScaleKind::e8m0;
            break;
        case MlxMode::nvfp4:
            planes.map = CodeMap::e2m1;
            planes.scale = ScaleKind::ue4m3;
            break;
    }
    return planes;
}

}  // namespace forge

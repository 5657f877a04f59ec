// Constructors spelled as calls: float4(1, 2, 3, 4). Last, because they are macros.
#pragma once

#define float2(...) metal::_mk<float2>(__VA_ARGS__)
#define float3(...) metal::_mk<float3>(__VA_ARGS__)
#define float4(...) metal::_mk<float4>(__VA_ARGS__)
#define half2(...) metal::_mk<half2>(__VA_ARGS__)
#define half3(...) metal::_mk<half3>(__VA_ARGS__)
#define half4(...) metal::_mk<half4>(__VA_ARGS__)
#define bfloat2(...) metal::_mk<bfloat2>(__VA_ARGS__)
#define bfloat4(...) metal::_mk<bfloat4>(__VA_ARGS__)
#define uint2(...) metal::_mk<uint2>(__VA_ARGS__)
#define uint3(...) metal::_mk<uint3>(__VA_ARGS__)
#define uint4(...) metal::_mk<uint4>(__VA_ARGS__)
#define int2(...) metal::_mk<int2>(__VA_ARGS__)
#define int4(...) metal::_mk<int4>(__VA_ARGS__)
#define ushort4(...) metal::_mk<ushort4>(__VA_ARGS__)
#define uchar4(...) metal::_mk<uchar4>(__VA_ARGS__)
#define ulong2(...) metal::_mk<ulong2>(__VA_ARGS__)
#define is_function_constant_defined(x) x##__defined
#pragma GCC poison double goto new delete try catch throw virtual dynamic_cast typeid thread_local

// The CUDA driver and NVRTC, loaded when a program starts to use them: one binary runs with and without a GPU.
// Only what Forge calls is declared; the layouts are the driver's stable ABI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace forge::cuda {

using Device = int;
using Result = int;
using Pointer = std::uint64_t;   // device memory
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Graph = struct GraphTag*;
using GraphExec = struct GraphExecTag*;

struct LaunchAttribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        int number;
    } value;
};
struct LaunchConfig {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    Stream stream;
    LaunchAttribute* attributes;
    unsigned attribute_count;
};
inline constexpr Result kNotReady = 600;
inline constexpr unsigned kUntimed = 2;      // of an event: it says when, not how long
inline constexpr int kDependentLaunch = 6;   // "programmatic stream serialization"
inline constexpr int kSharedPart = 14;       // "preferred shared memory carveout", in percent; drivers of CUDA 13 know it

// Device attributes.
enum { kMultiprocessors = 16, kComputeMajor = 75, kComputeMinor = 76 };
// Function attributes.
enum { kDynamicShared = 8 };

struct Driver {
    Result (*init)(unsigned flags);
    Result (*driver_version)(int* version);
    Result (*device_count)(int* count);
    Result (*device_get)(Device* device, int ordinal);
    Result (*device_name)(char* name, int bytes, Device device);
    Result (*device_attribute)(int* value, int attribute, Device device);
    Result (*device_memory)(std::size_t* bytes, Device device);
    Result (*context_retain)(Context* context, Device device);
    Result (*context_release)(Device device);
    Result (*context_set)(Context context);
    Result (*memory_info)(std::size_t* free, std::size_t* total);
    Result (*alloc)(Pointer* pointer, std::size_t bytes);
    Result (*free)(Pointer pointer);
    Result (*host_alloc)(void** pointer, std::size_t bytes, unsigned flags);
    Result (*host_free)(void* pointer);
    Result (*to_device)(Pointer to, const void* from, std::size_t bytes, Stream stream);
    Result (*to_host)(void* to, Pointer from, std::size_t bytes, Stream stream);
    Result (*fill8)(Pointer to, unsigned char value, std::size_t count, Stream stream);
    Result (*module_load)(Module* module, const void* image);
    Result (*module_unload)(Module module);
    Result (*module_function)(Function* function, Module module, const char* name);
    Result (*function_attribute)(Function function, int attribute, int value);
    Result (*launch)(const LaunchConfig* config, Function function, void** parameters, void** extra);
    Result (*stream_create)(Stream* stream, unsigned flags);
    Result (*stream_destroy)(Stream stream);
    Result (*stream_synchronize)(Stream stream);
    Result (*capture_begin)(Stream stream, int mode);
    Result (*capture_end)(Stream stream, Graph* graph);
    Result (*graph_instantiate)(GraphExec* exec, Graph graph, unsigned long long flags);
    Result (*graph_launch)(GraphExec exec, Stream stream);
    Result (*graph_destroy)(Graph graph);
    Result (*graph_exec_destroy)(GraphExec exec);
    Result (*event_create)(Event* event, unsigned flags);
    Result (*event_destroy)(Event event);
    Result (*event_record)(Event event, Stream stream);
    Result (*event_query)(Event event);   // kNotReady while it is under way
    Result (*event_elapsed)(float* milliseconds, Event start, Event end);
    Result (*error_name)(Result result, const char** name);
    Result (*error_text)(Result result, const char** text);
};

// Null with a sentence when the driver is not there or too old.
const Driver* load_driver(std::string* reason);

// Throws with the driver's words: out of memory as such, everything else as io.
void check(Result result, const char* what);

}  // namespace forge::cuda

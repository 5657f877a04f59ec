// The emulator's Metal objects.
#pragma once

#import <Metal/Metal.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "metal_emu/compile.h"

// What the environment asks for: METAL_EMU_CHECK=1 (findings fail the command buffer), METAL_EMU_COUNT=1
// (bytes can be counted, metal_emu/touched.h), METAL_EMU_SEED, METAL_EMU_WORKERS, METAL_EMU_PROFILE=m1|m3|m5.
struct EmuSettings {
    bool check, count;
    uint64_t seed;
    int workers;
    metal_emu::Profile profile;
};
const EmuSettings& emu_settings();

// What Apple's validation layer would stop: a sentence, and the end of the process.
[[noreturn]] void emu_misuse(const std::string& what);
void emu_set_error(NSError** error, const std::string& message, int code = 1);

@interface EmuBuffer : NSObject <MTLBuffer> {
  @public
    char* _memory;
    NSUInteger _length;
    bool _own;
    void (^_deallocator)(void*, NSUInteger);
    NSString* _label;
}
@end

@interface EmuLibrary : NSObject <MTLLibrary> {
  @public
    metal_emu::Library* _library;
    std::shared_ptr<metal_emu::Compiled>* _compiled;   // all kernels at once; none when they wait for constants
}
@end

@interface EmuFunction : NSObject <MTLFunction> {
  @public
    NSString* _name;
    std::shared_ptr<metal_emu::Compiled>* _compiled;
    const metal_emu::Function* _function;
    EmuLibrary* _library;
}
@end

@interface EmuPipeline : NSObject <MTLComputePipelineState> {
  @public
    EmuFunction* _function;
}
@end

@interface EmuEvent : NSObject <MTLSharedEvent> {
  @public
    std::mutex* _mutex;
    std::condition_variable* _changed;
    uint64_t _value;
}
@end

// The worker owns its state apart from the queue object, whose last reference can go on the worker itself.
struct EmuQueueState {
    std::deque<std::function<void()>> work;
    std::mutex mutex;
    std::condition_variable changed;
    bool stop = false;
};

@interface EmuQueue : NSObject <MTLCommandQueue> {
  @public
    std::shared_ptr<EmuQueueState>* _state;
    std::thread* _thread;
}
- (void)push_:(std::function<void()>)work;
@end

// A command: false fails the command buffer with a message.
using EmuCommand = std::function<bool(std::string&)>;

struct EmuCommands {
    std::vector<EmuCommand> list;
    std::vector<std::pair<metal_emu::Launch*, int>> launches;   // with the epoch between memory barriers
    std::vector<MTLCommandBufferHandler> handlers;
    std::vector<id> kept;
    int epoch = 0;
    std::mutex mutex;
    std::condition_variable changed;
    MTLCommandBufferStatus status = MTLCommandBufferStatusNotEnqueued;
    bool encoding = false, finished = false, retains = true;
    double start = 0, end = 0;
};

@interface EmuCommandBuffer : NSObject <MTLCommandBuffer> {
  @public
    EmuQueue* _queue;
    EmuCommands* _commands;
    NSError* _error;
}
- (void)keep_:(id)object;
- (void)add_barrier_;
- (void)run_;
@end

@interface EmuEncoder : NSObject <MTLComputeCommandEncoder> {
  @public
    EmuCommandBuffer* _commandBuffer;
    MTLDispatchType _type;
    bool _ended;
    EmuPipeline* _pipeline;
    EmuBuffer* _buffers[metal_emu::kBuffers];
    NSUInteger _offsets[metal_emu::kBuffers];
    std::vector<char>* _bytes[metal_emu::kBuffers];
    NSUInteger _threadgroup[metal_emu::kThreadgroupArguments];
    NSString* _label;
}
@end

// The same file on macOS and over the emulator (tools/metal-emu). No ARC: every object is in a Ref.
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <unistd.h>

#include <utility>

#include "base/error.h"
#include "metal_api.h"

namespace forge::metal {
namespace {

// By number, because older SDKs do not have the names: the GPUs with matrix units of their own (M5 and newer), the
// feature set of Metal 4, and versions of the language.
constexpr auto kFamilyApple10 = static_cast<MTLGPUFamily>(1010), kFamilyMetal4 = static_cast<MTLGPUFamily>(5002);
constexpr auto kLanguage3_2 = static_cast<MTLLanguageVersion>((3 << 16) + 2), kLanguage4_0 = static_cast<MTLLanguageVersion>(4 << 16);

// Owns one reference.
template <typename T>
class Ref {
  public:
    Ref() = default;
    explicit Ref(T taken) : object_(taken) {}                     // a +1 reference: new..., alloc
    static Ref share(T object) { return Ref((T)[object retain]); }   // an autoreleased one
    Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nil)) {}
    Ref& operator=(Ref&& other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Ref() { [object_ release]; }
    T get() const { return object_; }
    explicit operator bool() const { return object_ != nil; }

  private:
    T object_ = nil;
};

std::string words(NSError* error) { return error ? std::string([[error localizedDescription] UTF8String]) : "no reason was given"; }

class MetalBuffer final : public Buffer {
  public:
    explicit MetalBuffer(id<MTLBuffer> taken) : buffer(taken) {}
    std::byte* contents() const override { return static_cast<std::byte*>([buffer.get() contents]); }
    std::size_t bytes() const override { return [buffer.get() length]; }
    Ref<id<MTLBuffer>> buffer;
};

class MetalPipeline final : public Pipeline {
  public:
    explicit MetalPipeline(id<MTLComputePipelineState> taken) : state(taken) {}
    int most_threads() const override { return static_cast<int>([state.get() maxTotalThreadsPerThreadgroup]); }
    Ref<id<MTLComputePipelineState>> state;
};

class MetalDevice final : public Device {
  public:
    explicit MetalDevice(Ref<id<MTLDevice>> device) : device_(std::move(device)), queue_([device_.get() newCommandQueue]) {
        @autoreleasepool {
            info_.name = [[device_.get() name] UTF8String];
        }
        info_.working_set_bytes = [device_.get() recommendedMaxWorkingSetSize];
        info_.buffer_bytes = [device_.get() maxBufferLength];
        info_.threadgroup_bytes = [device_.get() maxThreadgroupMemoryLength];
        if (@available(macOS 26.0, *)) info_.matmul2d = [device_.get() supportsFamily:kFamilyApple10] && [device_.get() supportsFamily:kFamilyMetal4];
    }
    ~MetalDevice() override {
        if (command_) [command_.get() waitUntilCompleted];
    }
    const DeviceInfo& info() const override { return info_; }

    std::shared_ptr<Buffer> allocate(std::size_t bytes, const char* label) override {
        id<MTLBuffer> b = [device_.get() newBufferWithLength:std::max<std::size_t>(bytes, 16) options:kOptions];
        if (!b) fail(ErrorKind::out_of_memory, "the GPU could not allocate {} bytes; it can take {} in one buffer", bytes, info_.buffer_bytes);
        return named(b, label);
    }
    std::shared_ptr<Buffer> wrap(const std::byte* pages, std::size_t bytes, const char* label) override {
        id<MTLBuffer> b = [device_.get() newBufferWithBytesNoCopy:const_cast<std::byte*>(pages) length:bytes options:kOptions deallocator:nil];
        if (!b) fail(ErrorKind::out_of_memory, "the GPU could not map {} bytes of a model; it can take {} in one buffer", bytes, info_.buffer_bytes);
        return named(b, label);
    }
    std::map<std::string, std::shared_ptr<Pipeline>> compile(const std::string& source, std::span<const std::string> names) override {
        std::map<std::string, std::shared_ptr<Pipeline>> pipelines;
        @autoreleasepool {
            Ref<MTLCompileOptions*> options([[MTLCompileOptions alloc] init]);
            options.get().mathMode = MTLMathModeSafe;
            options.get().languageVersion = source.find("<metal_tensor>") == std::string::npos ? kLanguage3_2 : kLanguage4_0;
            NSError* error = nil;
            Ref<id<MTLLibrary>> library([device_.get() newLibraryWithSource:[NSString stringWithUTF8String:source.c_str()] options:options.get() error:&error]);
            if (!library) fail(ErrorKind::internal, "the Metal compiler refused the kernels:\n{}", words(error).substr(0, 8000));
            for (const std::string& name : names) {
                Ref<id<MTLFunction>> function([library.get() newFunctionWithName:[NSString stringWithUTF8String:name.c_str()]]);
                if (!function) fail(ErrorKind::internal, "the Metal library has no kernel {}", name);
                id<MTLComputePipelineState> state = [device_.get() newComputePipelineStateWithFunction:function.get() error:&error];
                if (!state) fail(ErrorKind::internal, "kernel {} cannot be prepared: {}", name, words(error));
                pipelines[name] = std::make_shared<MetalPipeline>(state);
            }
        }
        return pipelines;
    }
    void make_resident(std::span<const std::shared_ptr<Buffer>> buffers) override {
        @autoreleasepool {
            if (!resident_) {
                Ref<MTLResidencySetDescriptor*> descriptor([[MTLResidencySetDescriptor alloc] init]);
                NSError* error = nil;
                resident_ = Ref<id<MTLResidencySet>>([device_.get() newResidencySetWithDescriptor:descriptor.get() error:&error]);
                if (!resident_) fail(ErrorKind::io, "the GPU gave no residency set: {}", words(error));
                [queue_.get() addResidencySet:resident_.get()];
            }
            for (const auto& b : buffers) [resident_.get() addAllocation:static_cast<MetalBuffer&>(*b).buffer.get()];
            [resident_.get() commit];
            [resident_.get() requestResidency];
        }
    }

    void begin() override {
        @autoreleasepool {
            // Buffers are kept by their owners and by the residency set.
            command_ = Ref<id<MTLCommandBuffer>>::share([queue_.get() commandBufferWithUnretainedReferences]);
            encoder_ = Ref<id<MTLComputeCommandEncoder>>::share([command_.get() computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent]);
        }
    }
    void dispatch(const Dispatch& d) override {
        id<MTLComputeCommandEncoder> e = encoder_.get();
        if (d.barrier) [e memoryBarrierWithScope:MTLBarrierScopeBuffers];
        [e setComputePipelineState:static_cast<const MetalPipeline*>(d.pipeline)->state.get()];
        NSUInteger index = 0;
        for (const Binding& b : d.bindings) [e setBuffer:static_cast<const MetalBuffer*>(b.buffer)->buffer.get() offset:b.offset atIndex:index++];
        [e dispatchThreadgroups:MTLSizeMake(d.grid[0], d.grid[1], d.grid[2]) threadsPerThreadgroup:MTLSizeMake(d.threads, 1, 1)];
    }
    void commit() override {
        [encoder_.get() endEncoding];
        encoder_ = {};
        [command_.get() commit];
    }
    void wait() override {
        if (!command_) return;
        @autoreleasepool {
            [command_.get() waitUntilCompleted];
            seconds_ = [command_.get() GPUEndTime] - [command_.get() GPUStartTime];
            std::string error;
            if ([command_.get() status] != MTLCommandBufferStatusCompleted) error = words([command_.get() error]);
            command_ = {};
            if (!error.empty()) fail(ErrorKind::io, "the GPU could not finish a step: {}", error);
        }
    }
    double seconds() const override { return seconds_; }

  private:
    static std::shared_ptr<Buffer> named(id<MTLBuffer> taken, const char* label) {
        auto buffer = std::make_shared<MetalBuffer>(taken);
        @autoreleasepool {
            [taken setLabel:[NSString stringWithUTF8String:label]];
        }
        return buffer;
    }

    // Barriers are ours (from the program), so Metal need not track.
    static constexpr MTLResourceOptions kOptions = (MTLResourceOptions)(MTLResourceStorageModeShared | MTLResourceHazardTrackingModeUntracked);
    Ref<id<MTLDevice>> device_;
    Ref<id<MTLCommandQueue>> queue_;
    Ref<id<MTLResidencySet>> resident_;
    Ref<id<MTLCommandBuffer>> command_;
    Ref<id<MTLComputeCommandEncoder>> encoder_;
    DeviceInfo info_;
    double seconds_ = 0;
};

}  // namespace

std::unique_ptr<Device> open_device(std::string* reason) {
    Ref<id<MTLDevice>> device(MTLCreateSystemDefaultDevice());
    if (!device) {
        if (reason) *reason = "this machine has no Metal device";
        return nullptr;
    }
    if (![device.get() supportsFamily:MTLGPUFamilyApple7]) {
        if (reason) *reason = "the GPU is not one of Apple's own (M1 and newer)";
        return nullptr;
    }
    return std::make_unique<MetalDevice>(std::move(device));
}

std::size_t page_bytes() { return static_cast<std::size_t>(getpagesize()); }

}  // namespace forge::metal

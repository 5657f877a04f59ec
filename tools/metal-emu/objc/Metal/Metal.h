// The part of the Metal API that host code here uses: selectors, types and values are those of the public API.
#pragma once
#include <Foundation/Foundation.h>
#define METAL_EMULATION 1
typedef struct {
    NSUInteger width, height, depth;
} MTLSize;
static inline MTLSize MTLSizeMake(NSUInteger w, NSUInteger h, NSUInteger d) {
    MTLSize s = {w, h, d};
    return s;
}
typedef NS_OPTIONS(NSUInteger, MTLResourceOptions) {
    MTLResourceStorageModeShared = 0,
    MTLResourceStorageModePrivate = 2 << 4,
    MTLResourceHazardTrackingModeUntracked = 1 << 8,
    MTLResourceCPUCacheModeWriteCombined = 1
};
typedef NS_ENUM(NSUInteger, MTLDispatchType) { MTLDispatchTypeSerial, MTLDispatchTypeConcurrent };
typedef NS_OPTIONS(NSUInteger, MTLBarrierScope) { MTLBarrierScopeBuffers = 1, MTLBarrierScopeTextures = 2 };
typedef NS_ENUM(NSUInteger, MTLDataType) {
    MTLDataTypeFloat = 3,
    MTLDataTypeHalf = 16,
    MTLDataTypeInt = 29,
    MTLDataTypeUInt = 33,
    MTLDataTypeUShort = 41,
    MTLDataTypeBool = 53
};
typedef NS_ENUM(NSUInteger, MTLCommandBufferStatus) {
    MTLCommandBufferStatusNotEnqueued,
    MTLCommandBufferStatusEnqueued,
    MTLCommandBufferStatusCommitted,
    MTLCommandBufferStatusScheduled,
    MTLCommandBufferStatusCompleted,
    MTLCommandBufferStatusError
};
typedef NS_ENUM(NSInteger, MTLMathMode) { MTLMathModeSafe, MTLMathModeRelaxed, MTLMathModeFast };
typedef NS_ENUM(NSInteger, MTLGPUFamily) {
    MTLGPUFamilyApple7 = 1007,
    MTLGPUFamilyApple8 = 1008,
    MTLGPUFamilyApple9 = 1009,
    MTLGPUFamilyApple10 = 1010,
    MTLGPUFamilyMetal3 = 5001,
    MTLGPUFamilyMetal4 = 5002
};
typedef NS_ENUM(NSUInteger, MTLLanguageVersion) { MTLLanguageVersion3_2 = (3 << 16) + 2, MTLLanguageVersion4_0 = 4 << 16 };
@protocol MTLDevice
, MTLBuffer, MTLLibrary, MTLFunction, MTLCommandQueue, MTLCommandBuffer, MTLComputeCommandEncoder,
    MTLComputePipelineState, MTLSharedEvent, MTLResidencySet;
typedef void (^MTLCommandBufferHandler)(id<MTLCommandBuffer>);
@protocol MTLAllocation <NSObject>
@property(readonly) NSUInteger allocatedSize;
@end
@protocol MTLResource <MTLAllocation>
@property(copy) NSString* label;
@end
@protocol MTLBuffer <MTLResource>
@property(readonly) NSUInteger length;
- (void*)contents;
@end
@protocol MTLEvent <NSObject>
@end
@protocol MTLSharedEvent <MTLEvent>
@property(readwrite) uint64_t signaledValue;
- (BOOL)waitUntilSignaledValue:(uint64_t)v timeoutMS:(uint64_t)ms;
@end
@interface MTLCompileOptions : NSObject {
    MTLMathMode _mm;
    MTLLanguageVersion _lv;
    BOOL _fm;
}
@property MTLLanguageVersion languageVersion;
@property MTLMathMode mathMode;
@property BOOL fastMathEnabled;
@end
@interface MTLFunctionConstantValues : NSObject {
    void* _v;
}
- (void)setConstantValue:(const void*)v type:(MTLDataType)t atIndex:(NSUInteger)i;
- (void)setConstantValue:(const void*)v type:(MTLDataType)t withName:(NSString*)n;
@end
@interface MTLResidencySetDescriptor : NSObject {
    NSUInteger _cap;
}
@property NSUInteger initialCapacity;
@end
@protocol MTLResidencySet <NSObject>
- (void)addAllocation:(id<MTLAllocation>)a;
- (void)removeAllocation:(id<MTLAllocation>)a;
- (void)commit;
- (void)requestResidency;
- (void)endResidency;
@property(readonly) NSUInteger allocationCount;
@end
@protocol MTLFunction <NSObject>
@property(readonly) NSString* name;
@end
@protocol MTLLibrary <NSObject>
@property(readonly) NSArray* functionNames;
- (id<MTLFunction>)newFunctionWithName:(NSString*)n;
- (id<MTLFunction>)newFunctionWithName:(NSString*)n
                        constantValues:(MTLFunctionConstantValues*)v
                                 error:(NSError**)e;
@end
@protocol MTLComputePipelineState <NSObject>
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup, threadExecutionWidth,
    staticThreadgroupMemoryLength;
@end
@protocol MTLCommandEncoder <NSObject>
- (void)endEncoding;
@property(copy) NSString* label;
@end
@protocol MTLComputeCommandEncoder <MTLCommandEncoder>
@property(readonly) MTLDispatchType dispatchType;
- (void)setComputePipelineState:(id<MTLComputePipelineState>)p;
- (void)setBuffer:(id<MTLBuffer>)b offset:(NSUInteger)o atIndex:(NSUInteger)i;
- (void)setBufferOffset:(NSUInteger)o atIndex:(NSUInteger)i;
- (void)setBytes:(const void*)b length:(NSUInteger)n atIndex:(NSUInteger)i;
- (void)setThreadgroupMemoryLength:(NSUInteger)n atIndex:(NSUInteger)i;
- (void)dispatchThreadgroups:(MTLSize)g threadsPerThreadgroup:(MTLSize)t;
- (void)memoryBarrierWithScope:(MTLBarrierScope)s;
@end
@protocol MTLCommandBuffer <NSObject>
@property(readonly) MTLCommandBufferStatus status;
@property(readonly) NSError* error;
@property(readonly) CFTimeInterval GPUStartTime, GPUEndTime;
- (id<MTLComputeCommandEncoder>)computeCommandEncoder;
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)t;
- (void)encodeSignalEvent:(id<MTLEvent>)e value:(uint64_t)v;
- (void)encodeWaitForEvent:(id<MTLEvent>)e value:(uint64_t)v;
- (void)addCompletedHandler:(MTLCommandBufferHandler)h;
- (void)enqueue;
- (void)commit;
- (void)waitUntilCompleted;
@end
@protocol MTLCommandQueue <NSObject>
- (id<MTLCommandBuffer>)commandBuffer;
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences;
- (void)addResidencySet:(id<MTLResidencySet>)s;
@end
@protocol MTLDevice <NSObject>
@property(readonly) NSString* name;
@property(readonly) NSUInteger maxBufferLength, maxThreadgroupMemoryLength, currentAllocatedSize;
@property(readonly) uint64_t recommendedMaxWorkingSetSize;
@property(readonly) BOOL hasUnifiedMemory;
- (BOOL)supportsFamily:(MTLGPUFamily)f;
- (id<MTLCommandQueue>)newCommandQueue;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)n options:(MTLResourceOptions)o;
- (id<MTLBuffer>)newBufferWithBytes:(const void*)p length:(NSUInteger)n options:(MTLResourceOptions)o;
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)p
                                   length:(NSUInteger)n
                                  options:(MTLResourceOptions)o
                              deallocator:(void (^)(void*, NSUInteger))d;
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)s options:(MTLCompileOptions*)o error:(NSError**)e;
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)f error:(NSError**)e;
- (id<MTLSharedEvent>)newSharedEvent;
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)d error:(NSError**)e;
@end
#ifdef __cplusplus
extern "C"
#endif
    id<MTLDevice>
    MTLCreateSystemDefaultDevice(void);

// Must not compile: Metal has no such method. Shows that the check of the runtime sees what an
// Apple SDK would.
#import <Metal/Metal.h>

void dispatch(id<MTLComputeCommandEncoder> encoder) {
  [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerGroup:MTLSizeMake(32, 1, 1)];
}

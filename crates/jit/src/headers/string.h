// memcpy and memset on device memory are compiler operations.
#pragma once

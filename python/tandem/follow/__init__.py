# SPDX-License-Identifier: Apache-2.0
"""`tandem follow`: writes the reports of a job into a tracker."""
